//! `reap` on the running kernel, in both views: what is proven ends, and what took its place in between does not.
#![cfg(test)]
#![expect(clippy::disallowed_methods, reason = "fixtures make, disturb and end what is theirs")]

#[path = "../by_hand/mod.rs"]
mod by_hand;

mod elsewhere;
mod identity;
mod kill;
mod place;
mod scope;
mod stuck;

/// One test a view for each function.
macro_rules! in_both_views {
    ($($name:ident)+) => { $(
        mod $name {
            #[test]
            fn on_cgroup_v1() {
                if let Some(mut leak) = crate::place::Leaked::new(reaper_tests::CgroupView::V1) {
                    super::$name(&mut leak);
                }
            }

            #[test]
            fn on_cgroup_v2() {
                if let Some(mut leak) = crate::place::Leaked::new(reaper_tests::CgroupView::V2) {
                    super::$name(&mut leak);
                }
            }
        }
    )+ };
}
use in_both_views;
