//! A container outside of its cgroup: reported, never acted on.

use super::{Assessment, Evidence, Freshness, Judge, Veto};
use crate::fact::MisplacedSighting;
use crate::leak::{Cause, Guard, LeakKind, Source};
use crate::policy::Policy;

const MEANS: &str = "a live container is reported only";

// === impl MisplacedSighting ===

impl Judge for MisplacedSighting {
    fn rules() -> Vec<(Guard, &'static str)> {
        vec![(Guard::KnownToRuntime, MEANS)]
    }

    fn assess(&self, _policy: &Policy, _freshness: &Freshness) -> Assessment {
        let lives = format!(
            "init {} lives there, without what limits {}: delete the container and make it anew, after `systemctl \
             reset-failed` of its scope; runc 1.1.6 and later do not do this",
            self.init.tgid, self.named
        );
        let vetoes = vec![Veto::new(Guard::KnownToRuntime, lives)];
        Assessment { kind: LeakKind::Misplaced, cause: cause(self), evidence: collect(self), vetoes }
    }
}

/// A runtime that could not get a scope leaves the init where it runs itself: in a service.
fn cause(sighting: &MisplacedSighting) -> Cause {
    let in_service = sighting.elsewhere().any(|placement| {
        placement.path.name().is_some_and(|name| name.to_string_lossy().ends_with(".service"))
    });
    if in_service { Cause::UnitExists } else { Cause::Unknown }
}

fn collect(sighting: &MisplacedSighting) -> Vec<Evidence> {
    let named = format!("{} names {}", sighting.bundle.join("config.json").display(), sighting.named);
    let where_it_is = sighting.placements.iter().map(|placement| Evidence {
        source: Source::Procfs,
        what: format!("{}: init is in {}", placement.hierarchy, placement.path),
    });
    std::iter::once(Evidence { source: Source::Files, what: named }).chain(where_it_is).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fact::sample;
    use crate::ident::CgroupPath;
    use crate::inventory::History;
    use crate::leak::LeakState;
    use crate::time::BootTime;
    use crate::verdict::{Verdict, conclude};

    #[test]
    fn a_misplaced_container_is_never_proven_to_have_leaked() {
        let sighting = sample::misplaced();
        let now = BootTime::from_nanos(u64::MAX / 2);
        let history =
            History { first_seen: BootTime::default(), clean_since: Some(BootTime::default()), looks: 99 };
        let assessment = sighting.assess(&Policy::default(), &Freshness::Fresh);
        assert_eq!(assessment.cause, Cause::UnitExists);
        let verdict = conclude(&sighting, assessment, &history, &Policy::default(), now);
        assert_eq!(verdict.state(), Some(LeakState::Protected));
        assert!(matches!(verdict, Verdict::Held { kind: LeakKind::Misplaced, .. }));
    }

    #[test]
    fn one_that_was_moved_elsewhere_is_not_said_to_have_found_its_scope_taken() {
        let mut sighting = sample::misplaced();
        sighting.placements[0].path = CgroupPath::try_from("/user.slice/x.scope").unwrap();
        assert_eq!(sighting.assess(&Policy::default(), &Freshness::Fresh).cause, Cause::Unknown);
    }
}
