//! The few words of an OCI spec that correlation needs: `linux.cgroupsPath` and the group annotations.
//!
//! Read by a view that knows only these fields and skips everything else unread, so that a spec which a newer
//! or stricter schema refuses still tells where its cgroup is. Used for the `config.json` of a bundle and for
//! the spec in a container record, which is the same JSON.

use serde::Deserialize;
use serde_json::Value;

use super::cgroups_path::{CgroupsPathError, Driver, resolve};
use crate::ident::{CgroupPath, ContainerId, NameError};

/// What a spec says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Spec {
    cgroups_path: String,
    group: Option<ContainerId>,
    protected: bool,
}

/// Why a spec says nothing.
#[derive(Debug, thiserror::Error)]
pub(super) enum SpecError {
    #[error("the spec is not readable as JSON")]
    Json(#[source] serde_json::Error),
    #[error("{field} of the spec is no text")]
    Text { field: &'static str },
    #[error("{annotation} of the spec is no container id")]
    Group { annotation: &'static str, source: NameError },
}

#[derive(Deserialize)]
struct View {
    linux: Option<Linux>,
    annotations: Option<Annotations>,
}

#[derive(Deserialize)]
struct Linux {
    #[serde(rename = "cgroupsPath")]
    cgroups_path: Option<Value>,
}

/// Annotations that group containers, in the order in which the shim looks for them
/// (`cmd/containerd-shim-runc-v2/manager/manager_linux.go:groupLabels`).
#[derive(Deserialize)]
struct Annotations {
    #[serde(rename = "io.containerd.runc.v2.group")]
    runc_group: Option<Value>,
    #[serde(rename = "io.kubernetes.cri.sandbox-id")]
    sandbox_id: Option<Value>,
    /// Ours: whoever runs the container asks that it is never touched.
    #[serde(rename = "cgroup-reaper.io/protect")]
    protect: Option<Value>,
}

// === impl Spec ===

impl Spec {
    /// Reads the JSON of a spec.
    pub(super) fn parse(json: &[u8]) -> Result<Self, SpecError> {
        let view: View = serde_json::from_slice(json).map_err(SpecError::Json)?;
        let path = view.linux.and_then(|linux| linux.cgroups_path);
        let cgroups_path = text("linux.cgroupsPath", path)?.unwrap_or_default();
        let protected = view.annotations.as_ref().is_some_and(Annotations::protects);
        let group = match view.annotations {
            Some(annotations) => annotations.group()?,
            None => None,
        };
        Ok(Self { cgroups_path, group, protected })
    }

    /// Whether its annotation `cgroup-reaper.io/protect` asks that it is never touched.
    pub(super) const fn is_protected(&self) -> bool {
        self.protected
    }

    /// The cgroup that a runtime with this driver makes for it.
    pub(super) fn cgroup(&self, driver: Driver) -> Result<CgroupPath, CgroupsPathError> {
        resolve(&self.cgroups_path, driver)
    }

    /// Id of the group whose shim serves it; the container's own id where no annotation names one.
    pub(super) fn group(&self, own: &ContainerId) -> ContainerId {
        self.group.as_ref().unwrap_or(own).clone()
    }
}

// === impl Annotations ===

impl Annotations {
    /// Anything but an explicit no: whoever writes `yes` or `1` means it.
    fn protects(&self) -> bool {
        let no = [Value::from("false"), Value::from(""), Value::from(false), Value::Null];
        self.protect.as_ref().is_some_and(|value| !no.contains(value))
    }

    fn group(self) -> Result<Option<ContainerId>, SpecError> {
        let named = [
            ("io.containerd.runc.v2.group", self.runc_group),
            ("io.kubernetes.cri.sandbox-id", self.sandbox_id),
        ];
        for (annotation, value) in named {
            if let Some(id) = text(annotation, value)? {
                return ContainerId::try_from(id)
                    .map(Some)
                    .map_err(|source| SpecError::Group { annotation, source });
            }
        }
        Ok(None)
    }
}

fn text(field: &'static str, value: Option<Value>) -> Result<Option<String>, SpecError> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            Err(SpecError::Text { field })
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn id(text: &str) -> ContainerId {
        ContainerId::try_from(text).unwrap()
    }

    fn path(json: &str) -> Option<String> {
        let spec = Spec::parse(json.as_bytes()).ok()?;
        spec.cgroup(Driver::Cgroupfs).ok().map(|path| path.to_string())
    }

    #[test]
    fn the_cgroups_path_is_found_in_a_spec_that_the_schema_refuses() {
        let odd = r#"{"ociVersion": 7, "process": [], "hooks": "none", "linux": {"cgroupsPath": "/a/b", "seccomp": 1}}"#;
        assert!(serde_json::from_str::<oci_spec::runtime::Spec>(odd).is_err());
        assert_eq!(path(odd).as_deref(), Some("/a/b"));
    }

    #[test]
    fn a_spec_without_a_usable_path_names_no_cgroup() {
        for json in [
            "",
            "{",
            "[]",
            "null",
            "{}",
            r#"{"linux":null}"#,
            r#"{"linux":{}}"#,
            r#"{"linux":{"cgroupsPath":7}}"#,
            r#"{"linux":{"cgroupsPath":"/a","cgroupsPath":"/b"}}"#,
            r#"{"linux":"/a"}"#,
            "{\"linux\":{\"cgroupsPath\":\"/a\"}",
        ] {
            assert_eq!(path(json), None, "{json}");
        }
    }

    #[test]
    fn the_first_group_annotation_wins_and_none_means_the_containers_own_id() {
        let group = |annotations: &str| {
            Spec::parse(format!(r#"{{"annotations":{annotations}}}"#).as_bytes())
                .map(|spec| spec.group(&id("own")))
        };
        let both = r#"{"io.kubernetes.cri.sandbox-id":"s","io.containerd.runc.v2.group":"g","x":1}"#;
        assert_eq!(group(both).ok(), Some(id("g")));
        assert_eq!(group(r#"{"io.kubernetes.cri.sandbox-id":"s"}"#).ok(), Some(id("s")));
        assert_eq!(group(r#"{"other":"s"}"#).ok(), Some(id("own")));
        assert_eq!(group("null").ok(), Some(id("own")));
        for bad in [
            r#"{"io.kubernetes.cri.sandbox-id":"../s"}"#,
            r#"{"io.containerd.runc.v2.group":""}"#,
            r#"{"io.containerd.runc.v2.group":1}"#,
        ] {
            assert!(group(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn only_an_explicit_no_takes_back_the_protection() {
        let protected = |value: &str| {
            let json = format!(r#"{{"annotations":{{"cgroup-reaper.io/protect":{value}}}}}"#);
            Spec::parse(json.as_bytes()).unwrap().is_protected()
        };
        for yes in [r#""true""#, r#""1""#, r#""yes""#, "true", "1", "{}"] {
            assert!(protected(yes), "{yes}");
        }
        for no in [r#""false""#, r#""""#, "false", "null"] {
            assert!(!protected(no), "{no}");
        }
        assert!(!Spec::parse(b"{}").unwrap().is_protected());
    }

    proptest! {
        #[test]
        fn no_input_makes_it_panic(json in prop_oneof!["\\PC{0,60}", "[\\{\\}\\[\\]\":,a0]{0,40}"]) {
            let accepted = Spec::parse(json.as_bytes()).is_ok();
            prop_assert!(!accepted || serde_json::from_str::<Value>(&json).is_ok());
        }
    }
}
