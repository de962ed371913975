//! A connection to the system bus, and the calls that are made on it.

use std::collections::HashMap;

use serde::Serialize;
use serde::de::DeserializeOwned;
use zbus::connection::Builder;
use zbus::{Connection, DynamicType, OwnedObjectPath, OwnedVariant, Type};

use crate::ident::CgroupPathError;

/// Who is asked.
pub(super) const SERVICE: &str = "org.freedesktop.systemd1";
/// The object that knows all units.
pub(super) const MANAGER: &str = "/org/freedesktop/systemd1";
/// Its interface.
pub(super) const MANAGER_INTERFACE: &str = "org.freedesktop.systemd1.Manager";
const PROPERTIES: &str = "org.freedesktop.DBus.Properties";

/// Errors by which systemd says that a unit is not there (`src/libsystemd/sd-bus/bus-common-errors.h`).
const NO_UNIT: [&str; 2] =
    ["org.freedesktop.systemd1.NoSuchUnit", "org.freedesktop.DBus.Error.UnknownObject"];

/// Properties of one interface of one object.
pub(super) type Properties = HashMap<String, OwnedVariant>;

/// One unit as `ListUnitsByPatterns` tells it: name, description, load state, active state, sub state, following,
/// object, job's number, job's type, job's object.
pub(super) type Listed =
    (String, String, String, String, String, String, OwnedObjectPath, u32, String, OwnedObjectPath);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum BusError {
    /// The bus is not there, or refuses us.
    #[error("connect to the system bus")]
    Connect(#[source] Box<zbus::Error>),
    /// Everything together took too long.
    #[error("no answer within {:?}", super::DEADLINE)]
    Deadline,
    /// systemd refused, or the connection broke.
    #[error("{0}")]
    Call(&'static str, #[source] Box<zbus::Error>),
    /// The answer is not what this version of systemd's interface says.
    #[error("{what} of {unit} cannot be understood")]
    Answer {
        /// The unit.
        unit: String,
        /// The property.
        what: &'static str,
    },
    /// The unit's cgroup is no path.
    #[error("the cgroup of {unit}")]
    Cgroup {
        /// The unit.
        unit: String,
        /// Why.
        #[source]
        source: CgroupPathError,
    },
}

/// A connection.
#[derive(Debug)]
pub(super) struct Bus(Connection);

// === impl BusError ===

impl BusError {
    /// systemd says, explicitly, that it does not have the unit.
    pub(super) fn is_absence(&self) -> bool {
        match self {
            Self::Call(_, error) => {
                matches!(error.as_ref(), zbus::Error::MethodError(name, ..) if NO_UNIT.contains(&name.as_str()))
            }
            Self::Connect(_) | Self::Deadline | Self::Answer { .. } | Self::Cgroup { .. } => false,
        }
    }
}

// === impl Bus ===

impl Bus {
    pub(super) async fn connect(socket: &str) -> Result<Self, BusError> {
        let address = format!("unix:path={socket}");
        let built = Builder::address(address.as_str()).build().await;
        built.map(Self).map_err(|error| BusError::Connect(Box::new(error)))
    }

    pub(super) const fn connection(&self) -> &Connection {
        &self.0
    }

    /// Units in one of the states whose names match one of the patterns; both empty match all.
    pub(super) async fn list(&self, states: &[&str], patterns: &[String]) -> Result<Vec<Listed>, BusError> {
        self.ask(MANAGER, MANAGER_INTERFACE, "ListUnitsByPatterns", (states, patterns)).await
    }

    /// All properties of an interface.
    pub(super) async fn properties(
        &self,
        object: &OwnedObjectPath,
        interface: &str,
    ) -> Result<Properties, BusError> {
        self.ask(object.as_str(), PROPERTIES, "GetAll", (interface,)).await
    }

    /// The object of a loaded unit.
    pub(super) async fn unit(&self, name: &str) -> Result<OwnedObjectPath, BusError> {
        self.ask(MANAGER, MANAGER_INTERFACE, "GetUnit", (name,)).await
    }

    #[expect(clippy::disallowed_methods, reason = "asks only")]
    async fn ask<T: DeserializeOwned + Type>(
        &self,
        object: &str,
        interface: &str,
        method: &'static str,
        body: impl Serialize + DynamicType,
    ) -> Result<T, BusError> {
        let answer = self.0.call_method(Some(SERVICE), object, Some(interface), method, &body).await;
        let wrap = |error| BusError::Call(method, Box::new(error));
        answer.map_err(wrap)?.body().deserialize::<T>().map_err(wrap)
    }
}
