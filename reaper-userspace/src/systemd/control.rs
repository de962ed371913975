//! The write half: what systemd is asked to do. Called by `reap` alone.

use std::time::Duration;

use tokio::time::timeout;

use super::bus::{Bus, BusError, MANAGER, MANAGER_INTERFACE, SERVICE};
use super::{PLACE, scope};
use crate::fact::ActiveState;
use crate::ident::{InvocationId, UnitName};

/// How a reset ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    /// systemd has forgotten the failure, and with it the unit.
    Done,
    /// The unit was not there, or not failed, any more.
    Gone,
    /// Another run of the unit is there: nothing was done.
    Other,
}

/// Makes systemd forget a failed scope, if it is still that run of it. Does nothing to a unit that is not failed: it
/// clears a flag (`src/core/unit.c:unit_reset_failed`), which frees the unit.
#[expect(clippy::disallowed_methods, reason = "resets a failed scope")]
pub async fn reset_failed(
    name: &UnitName,
    invocation: InvocationId,
    limit: Duration,
) -> Result<Reset, BusError> {
    const METHOD: &str = "ResetFailedUnit";
    let asked = async {
        let bus = Bus::connect(PLACE.bus).await?;
        match scope::one(&bus, name).await? {
            None => return Ok(Reset::Gone),
            Some(unit) if unit.invocation != invocation => return Ok(Reset::Other),
            Some(unit) if unit.state != ActiveState::Failed => return Ok(Reset::Gone),
            Some(_) => {}
        }
        let body = (name.as_str(),);
        let interface = Some(MANAGER_INTERFACE);
        let call = bus.connection().call_method(Some(SERVICE), MANAGER, interface, METHOD, &body).await;
        match call.map_err(|error| BusError::Call(METHOD, Box::new(error))) {
            Ok(_) => Ok(Reset::Done),
            Err(error) if error.is_absence() => Ok(Reset::Gone),
            Err(error) => Err(error),
        }
    };
    timeout(limit, asked).await.unwrap_or(Err(BusError::Deadline))
}
