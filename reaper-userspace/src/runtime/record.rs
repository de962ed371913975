//! From a container record of containerd to the few words that correlation needs.
//!
//! Pure. A record outlives its bundle: after a failed create containerd 1.6 removes the bundle, and the record's
//! spec is what still names the cgroup. The cgroup driver comes from the record's runtime options.

use std::path::PathBuf;

use containerd_client::services::v1::Container;
use containerd_client::services::v1::container::Runtime;
use containerd_shim_protos::protobuf::{self, Message as _};
use containerd_shim_protos::shim::oci::Options;

use super::cgroups_path::{CgroupsPathError, Driver};
use super::reason;
use super::spec::{Spec, SpecError};
use crate::fact::{ContainerRecord, RuntimeChoice};
use crate::ident::{CgroupPath, ContainerId, ContainerKey, Lookup, NameError, Namespace};

/// Message name of runc's options (`api/types/runc/options/oci.proto`).
const RUNC_OPTIONS: &str = "containerd.runc.v1.Options";

#[derive(Debug, thiserror::Error)]
enum RecordError {
    #[error("read its spec")]
    Spec(#[source] SpecError),
    #[error("decode its runtime options")]
    Options(#[source] protobuf::Error),
    #[error("its runtime options are {0:?}, which do not tell the cgroup driver")]
    Runtime(String),
    #[error("resolve its cgroup")]
    Cgroup(#[source] CgroupsPathError),
}

/// Reduces a record. What it does not tell is `Unavailable` in the result; only its id must be good.
pub(super) fn reduce(container: &Container, namespace: &Namespace) -> Result<ContainerRecord, NameError> {
    let id = ContainerId::try_from(container.id.as_str())?;
    let key = ContainerKey { namespace: namespace.clone(), id };
    let (cgroup, group) = match read(container, &key.id) {
        Ok(Some((cgroup, group))) => (Lookup::Found(cgroup), group),
        Ok(None) => (Lookup::NotFound, key.id.clone()),
        Err(error) => (Lookup::Unavailable(format!("record of {key}: {}", reason(&error))), key.id.clone()),
    };
    let spec = container.spec.as_ref().and_then(|json| Spec::parse(&json.value).ok());
    let protected = spec.is_some_and(|spec| spec.is_protected());
    let runtime = match options(container.runtime.as_ref()) {
        Ok(Some(options)) => Lookup::Found(choice(&options)),
        Ok(None) => Lookup::NotFound,
        Err(error) => Lookup::Unavailable(format!("record of {key}: {}", reason(&error))),
    };
    Ok(ContainerRecord { key, cgroup, group, runtime, protected })
}

/// `None` if the record has no spec at all.
fn read(container: &Container, own: &ContainerId) -> Result<Option<(CgroupPath, ContainerId)>, RecordError> {
    let Some(json) = &container.spec else { return Ok(None) };
    let spec = Spec::parse(&json.value).map_err(RecordError::Spec)?;
    let driver = driver(container.runtime.as_ref())?;
    let cgroup = spec.cgroup(driver).map_err(RecordError::Cgroup)?;
    Ok(Some((cgroup, spec.group(own))))
}

/// Without options the shim runs with its defaults, which are runc and cgroupfs.
fn driver(runtime: Option<&Runtime>) -> Result<Driver, RecordError> {
    let options = options(runtime)?;
    Ok(options.map_or(Driver::Cgroupfs, |options| Driver::of(options.systemd_cgroup, &options.binary_name)))
}

fn choice(options: &Options) -> RuntimeChoice {
    let told = |word: &String| (!word.is_empty()).then(|| word.clone());
    RuntimeChoice { binary: told(&options.binary_name), root: told(&options.root).map(PathBuf::from) }
}

fn options(runtime: Option<&Runtime>) -> Result<Option<Options>, RecordError> {
    let Some(options) = runtime.and_then(|runtime| runtime.options.as_ref()) else { return Ok(None) };
    // typeurl writes the bare name, others a URL that ends in it.
    if options.type_url.rsplit('/').next() != Some(RUNC_OPTIONS) {
        return Err(RecordError::Runtime(options.type_url.clone()));
    }
    Options::parse_from_bytes(&options.value).map(Some).map_err(RecordError::Options)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(spec: &str, options: Option<(&str, &[u8])>) -> Container {
        let mut runtime = Runtime::default();
        if let Some((name, value)) = options {
            let any = runtime.options.get_or_insert_default();
            any.type_url = name.to_owned();
            any.value = value.to_vec();
        }
        let mut container = Container { id: "id".to_owned(), runtime: Some(runtime), ..Container::default() };
        container.spec.get_or_insert_default().value = spec.as_bytes().to_vec();
        container
    }

    fn reduced(container: &Container) -> ContainerRecord {
        reduce(container, &Namespace::try_from("ns").unwrap()).unwrap()
    }

    fn cgroup(spec: &str, options: Option<(&str, &[u8])>) -> Lookup<String> {
        reduced(&container(spec, options)).cgroup.map(|cgroup| cgroup.to_string())
    }

    const SYSTEMD: &str = r#"{"linux":{"cgroupsPath":"a.slice:p:id"}}"#;
    /// Field 9, a varint, is 1.
    const SYSTEMD_CGROUP: &[u8] = &[0x48, 1];

    #[test]
    fn the_driver_comes_from_the_runtime_options() {
        let scope = Lookup::Found("/a.slice/p-id.scope".to_owned());
        assert_eq!(cgroup(SYSTEMD, Some((RUNC_OPTIONS, SYSTEMD_CGROUP))), scope);
        assert_eq!(
            cgroup(SYSTEMD, Some(("types.example/containerd.runc.v1.Options", SYSTEMD_CGROUP))),
            scope
        );
        let crun = [&[0x32, 4], &b"crun"[..], SYSTEMD_CGROUP].concat();
        assert_eq!(cgroup(SYSTEMD, Some((RUNC_OPTIONS, &crun))), scope);
        assert_eq!(cgroup(r#"{"linux":{"cgroupsPath":"/ns/id"}}"#, None), Lookup::Found("/ns/id".to_owned()));
        assert!(cgroup(SYSTEMD, None).unavailable().is_some());
    }

    #[test]
    fn the_runtimes_binary_and_root_come_from_the_runtime_options() {
        let spec = r#"{"linux":{"cgroupsPath":"/ns/id"}}"#;
        let value = [&[0x32, 4], &b"crun"[..], &[0x3a, 2], &b"/r"[..]].concat();
        let told = RuntimeChoice { binary: Some("crun".to_owned()), root: Some(PathBuf::from("/r")) };
        assert_eq!(reduced(&container(spec, Some((RUNC_OPTIONS, &value)))).runtime, Lookup::Found(told));
        assert_eq!(reduced(&container(spec, None)).runtime, Lookup::NotFound);
        let other = reduced(&container(spec, Some(("x", &value)))).runtime;
        assert!(other.unavailable().is_some(), "{other:?}");
    }

    #[test]
    fn what_a_record_does_not_tell_is_unavailable_and_names_the_container() {
        for (spec, options) in [
            ("{", None),
            (SYSTEMD, Some(("runtimeoptions.v1.Options", SYSTEMD_CGROUP))),
            (SYSTEMD, Some((RUNC_OPTIONS, &[0x48][..]))),
            (r#"{"linux":{"cgroupsPath":"/../x"}}"#, None),
        ] {
            let answer = cgroup(spec, options);
            assert!(answer.unavailable().is_some_and(|why| why.contains("ns/id")), "{answer:?}");
        }
    }

    #[test]
    fn the_group_is_the_sandbox_or_the_container_itself() {
        let group = |spec: &str| reduced(&container(spec, None)).group.to_string();
        assert_eq!(
            group(r#"{"linux":{"cgroupsPath":"/a"},"annotations":{"io.kubernetes.cri.sandbox-id":"pod"}}"#),
            "pod"
        );
        assert_eq!(group(r#"{"linux":{"cgroupsPath":"/a"}}"#), "id");
    }

    #[test]
    fn a_record_without_a_spec_names_no_cgroup_and_one_without_a_good_id_is_refused() {
        let bare = Container { id: "id".to_owned(), ..Container::default() };
        assert_eq!(reduced(&bare).cgroup, Lookup::NotFound);
        assert!(
            reduce(&Container { id: "../x".to_owned(), ..bare }, &Namespace::try_from("ns").unwrap())
                .is_err()
        );
    }
}
