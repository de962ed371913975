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

#[cfg(test)]
mod tests {
    use zbus::{ObjectPath, Variant};

    use super::*;

    fn value(value: impl Into<Variant<'static>>) -> OwnedVariant {
        value.into().try_into().unwrap()
    }

    fn unit() -> Properties {
        let job = (0_u32, ObjectPath::try_from("/").unwrap());
        [("InvocationID", value(vec![7_u8; 16])), ("ActiveState", value("failed")), ("Job", value(job))]
            .map(|(name, value)| (name.to_owned(), value))
            .into()
    }

    fn scope() -> Properties {
        let of = |name: &str, text: &'static str| (name.to_owned(), value(text));
        [of("ControlGroup", "/kubepods.slice/cri-containerd-a.scope"), of("Result", "timeout")].into()
    }

    fn read(unit: &Properties, scope: &Properties) -> Result<Option<UnitFact>, BusError> {
        let name = UnitName::try_from("cri-containerd-a.scope".to_owned()).unwrap();
        let container = name.container().unwrap();
        fact(name, container, unit, scope)
    }

    #[test]
    fn a_failed_scope_is_read_with_its_run_and_its_cgroup() {
        let read = read(&unit(), &scope()).unwrap().unwrap();
        assert_eq!((read.state, read.has_job, read.result.as_str()), (ActiveState::Failed, false, "timeout"));
        assert_eq!(read.invocation, InvocationId::from_bytes(&[7; 16]).unwrap());
        assert_eq!(read.cgroup.unwrap().to_string(), "/kubepods.slice/cri-containerd-a.scope");
    }

    #[test]
    fn a_unit_that_never_ran_is_none_and_a_removed_cgroup_is_no_path() {
        let mut never = unit();
        never.insert("InvocationID".to_owned(), value(Vec::<u8>::new()));
        assert_eq!(read(&never, &scope()).unwrap(), None);
        let mut removed = scope();
        removed.insert("ControlGroup".to_owned(), value(""));
        assert_eq!(read(&unit(), &removed).unwrap().unwrap().cgroup, None);
    }

    #[test]
    fn a_state_of_a_later_systemd_is_busy() {
        for word in ["active", "activating", "deactivating", "refreshing", "what comes next"] {
            let mut later = unit();
            later.insert("ActiveState".to_owned(), value(word));
            assert_eq!(read(&later, &scope()).unwrap().unwrap().state, ActiveState::Busy, "{word}");
        }
    }

    #[test]
    fn an_answer_that_cannot_be_understood_is_an_error_not_absence() {
        let spoils: [fn(&mut Properties, &mut Properties); 6] = [
            |unit, _| drop(unit.remove("InvocationID")),
            |unit, _| drop(unit.remove("Job")),
            |unit, _| drop(unit.insert("InvocationID".to_owned(), value(vec![7_u8; 3]))),
            |unit, _| drop(unit.insert("ActiveState".to_owned(), value(1_u32))),
            |_, scope| drop(scope.remove("Result")),
            |_, scope| drop(scope.insert("ControlGroup".to_owned(), value("/a/../b"))),
        ];
        for (number, spoil) in spoils.into_iter().enumerate() {
            let (mut unit, mut scope) = (unit(), scope());
            spoil(&mut unit, &mut scope);
            assert!(read(&unit, &scope).is_err(), "{number}");
        }
    }
}
