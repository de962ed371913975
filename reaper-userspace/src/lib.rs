//! cgroup-reaper: finds container cgroups that leaked, proves it, and reaps exactly those.
//!
//! Layers, lowest first; a module uses lower layers, and of its own layer only what the table of
//! `cargo xtask check layers` allows:
//!
//! | layer | modules |
//! |---|---|
//! | 0 | [`ident`] [`time`] [`kernel`] [`fact`] [`event`] [`leak`]: names, facts and words |
//! | 1 | [`policy`] [`inventory`] [`lineage`] [`verdict`] [`plan`]: pure judgement |
//! | 2 | [`probe`] [`cgroupfs`] [`procfs`] [`runtime`] [`systemd`] [`mounts`] [`audit`] [`metrics`] [`admin`] [`state`]: one source or sink each |
//! | 3 | [`survey`] asks all sources, [`reap`] has all effects |
//! | 4 | [`daemon`] [`cli`] wire the parts |

pub mod admin;
pub mod audit;
pub mod cgroupfs;
pub mod cli;
pub mod daemon;
pub mod event;
pub mod fact;
pub mod ident;
pub mod inventory;
pub mod kernel;
pub mod leak;
pub mod lineage;
pub mod metrics;
pub mod mounts;
pub mod plan;
pub mod policy;
pub mod probe;
pub mod procfs;
pub mod reap;
pub mod runtime;
pub mod state;
pub mod survey;
pub mod systemd;
pub mod time;
pub mod verdict;
