//! Facts about scopes from what systemd answers.

use zbus::{OwnedObjectPath, OwnedVariant};

use super::LIMIT;
use super::bus::{Bus, BusError, Properties};
use crate::fact::{ActiveState, UnitFact};
use crate::ident::{CgroupPath, ContainerId, InvocationId, UnitName};

const UNIT: &str = "org.freedesktop.systemd1.Unit";
const SCOPE: &str = "org.freedesktop.systemd1.Scope";

/// Scopes of containers that failed.
pub(super) async fn failed(bus: &Bus) -> Result<Vec<UnitFact>, BusError> {
    let listed = bus.list(&["failed"], &UnitName::container_patterns()).await?;
    let mut scopes = vec![];
    for (name, .., object, _, _, _) in listed.into_iter().take(LIMIT) {
        // A pattern matches more than a container's name can be.
        let Ok(name) = UnitName::try_from(name) else { continue };
        let Some(container) = name.container() else { continue };
        // Reset by somebody else meanwhile.
        scopes.extend(present(read(bus, name, container, &object).await)?.flatten());
    }
    Ok(scopes)
}

/// One scope, if it is a container's and loaded.
pub(super) async fn one(bus: &Bus, name: &UnitName) -> Result<Option<UnitFact>, BusError> {
    let Some(container) = name.container() else { return Ok(None) };
    let Some(object) = present(bus.unit(name.as_str()).await)? else { return Ok(None) };
    Ok(present(read(bus, name.clone(), container, &object).await)?.flatten())
}

/// `None` for a unit that systemd says it does not have.
fn present<T>(answer: Result<T, BusError>) -> Result<Option<T>, BusError> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_absence() => Ok(None),
        Err(error) => Err(error),
    }
}

async fn read(
    bus: &Bus,
    name: UnitName,
    container: ContainerId,
    object: &OwnedObjectPath,
) -> Result<Option<UnitFact>, BusError> {
    let unit = bus.properties(object, UNIT).await?;
    let scope = bus.properties(object, SCOPE).await?;
    fact(name, container, &unit, &scope)
}

/// `None` for a unit that never ran: it was not loaded, and asking has loaded an empty one.
fn fact(
    name: UnitName,
    container: ContainerId,
    unit: &Properties,
    scope: &Properties,
) -> Result<Option<UnitFact>, BusError> {
    let wrong = |what| BusError::Answer { unit: name.to_string(), what };
    let invocation: Vec<u8> = property(unit, "InvocationID").ok_or_else(|| wrong("InvocationID"))?;
    if invocation.is_empty() {
        return Ok(None);
    }
    let invocation = InvocationId::from_bytes(&invocation).ok_or_else(|| wrong("InvocationID"))?;
    let state: String = property(unit, "ActiveState").ok_or_else(|| wrong("ActiveState"))?;
    let job: (u32, OwnedObjectPath) = property(unit, "Job").ok_or_else(|| wrong("Job"))?;
    let cgroup: String = property(scope, "ControlGroup").ok_or_else(|| wrong("ControlGroup"))?;
    let cgroup = match cgroup.as_str() {
        "" => None,
        path => Some(
            CgroupPath::try_from(path)
                .map_err(|source| BusError::Cgroup { unit: name.to_string(), source })?,
        ),
    };
    let result = property(scope, "Result").ok_or_else(|| wrong("Result"))?;
    let state = active_state(&state);
    Ok(Some(UnitFact { name, container, state, result, invocation, cgroup, has_job: job.0 != 0 }))
}

/// A state of a later systemd is not one that anything is done about.
fn active_state(word: &str) -> ActiveState {
    match word {
        "failed" => ActiveState::Failed,
        "inactive" => ActiveState::Inactive,
        _ => ActiveState::Busy,
    }
}

fn property<T: TryFrom<OwnedVariant>>(properties: &Properties, name: &str) -> Option<T> {
    properties.get(name)?.try_clone().ok()?.try_into().ok()
}
