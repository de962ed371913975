//! cgroup-reaper: finds container cgroups that leaked, proves it, and reaps exactly those.
//!
//! Layers, lowest first; a module uses its own layer's neighbours only as `xtask check layers` allows:
//! 0 [`ident`] [`time`] [`fact`] · 1 `policy` `inventory` `verdict` `plan` ·
//! 2 `probe` `cgroupfs` `procfs` `runtime` `mounts` `audit` `metrics` · 3 `survey` `reap` · 4 `daemon` `cli`.

pub mod admin;
pub mod audit;
pub mod cgroupfs;
pub mod event;
pub mod fact;
pub mod ident;
pub mod inventory;
pub mod kernel;
pub mod leak;
pub mod metrics;
pub mod mounts;
pub mod plan;
pub mod policy;
pub mod probe;
pub mod procfs;
pub mod runtime;
pub mod time;
pub mod verdict;
