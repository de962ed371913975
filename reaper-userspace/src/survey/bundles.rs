//! All questions about one bundle whose container has no cgroup.

use super::examine::{self, Question};
use super::relatives;
use crate::fact::BundleSighting;
use crate::ident::{ContainerKey, Lookup};
use crate::runtime::{bundle, shim};

/// `None` if there is no bundle, or nothing is mounted in it. The caller has seen that the cgroup is in no hierarchy.
pub(super) async fn examine(question: &Question<'_>) -> Option<BundleSighting> {
    let Question { candidate, scene, sources, .. } = *question;
    let found = examine::find_bundle(sources, &candidate.container);
    let mounts = examine::rootfs_mounts(&found, scene);
    if mounts.found().is_some_and(Vec::is_empty) {
        return None;
    }
    let runc_state = examine::runc_state(question, &found);
    let bundle = found.found()?.clone();
    let mut unreadable: Vec<String> = scene.blind().cloned().collect();
    unreadable.extend(question.layout.warnings().iter().map(ToString::to_string));
    Some(BundleSighting {
        directory: in_states(question, |state| bundle::identity_of(state, &bundle.key)),
        mounts,
        unreadable,
        runc_state,
        runtimes: examine::ask_servers(question).await,
        // The bundle tells the group, so other groups' shims are not asked; any shim that is asked has it.
        shims: examine::ask_shims(question, true).await,
        listener: listener(question, &bundle.key),
        in_flight: relatives::of(&bundle.key, &[], scene).in_flight,
        bundle,
    })
}

/// A bundle in which something was mounted had a shim, and that shim's socket is named in it.
fn listener(question: &Question<'_>, key: &ContainerKey) -> Lookup<()> {
    match in_states(question, |state| bundle::shim_address(state, key)) {
        Lookup::Found(named) => match shim::socket_of(&named.address) {
            Some(socket) => shim::listener(socket),
            None => Lookup::Unavailable(format!("the shim of {key} listens at no path")),
        },
        Lookup::NotFound => Lookup::Unavailable(format!("the bundle of {key} names no shim's socket")),
        Lookup::Unavailable(reason) => Lookup::Unavailable(reason),
    }
}

/// The first state directory that has it.
fn in_states<T>(question: &Question<'_>, ask: impl Fn(&std::path::Path) -> Lookup<T>) -> Lookup<T> {
    let mut answer = Lookup::NotFound;
    for state in &question.sources.containerd_states {
        match ask(state) {
            Lookup::NotFound => {}
            found @ Lookup::Found(_) => return found,
            unavailable @ Lookup::Unavailable(_) => answer = unavailable,
        }
    }
    answer
}
