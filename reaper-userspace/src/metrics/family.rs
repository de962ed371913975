//! Metrics with typed labels: what is not a value of the label's type cannot be counted.

use std::fmt;
use std::marker::PhantomData;

use prometheus::core::Collector;
use prometheus::{
    Counter, Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, Opts,
    Registry,
};

use super::label::Labels;

/// Prefix of every name that is this program's own.
const PREFIX: &str = "cgroup_reaper";

/// Metrics of one name, one for each value of their labels, all of them there from the start.
#[derive(Clone)]
pub struct Family<L, M> {
    members: Vec<(Vec<&'static str>, M)>,
    labels: PhantomData<fn(L)>,
}

/// Counters by label.
pub type Counters<L> = Family<L, IntCounter>;
/// Gauges by label.
pub type Gauges<L> = Family<L, Gauge>;
/// Histograms by label.
pub type Histograms<L> = Family<L, Histogram>;

/// Registers metrics.
pub(super) struct Maker<'a>(pub(super) &'a Registry);

// === impl Family ===

impl<L: Labels, M> Family<L, M> {
    fn new(make: impl Fn(&[&'static str]) -> prometheus::Result<M>) -> prometheus::Result<Self> {
        let member = |labels: L| {
            let values = labels.values();
            make(&values).map(|metric| (values, metric))
        };
        let members = L::all().into_iter().map(member).collect::<prometheus::Result<_>>()?;
        Ok(Self { members, labels: PhantomData })
    }

    fn find(&self, labels: L) -> Option<&M> {
        let values = labels.values();
        self.members.iter().find(|(these, _)| *these == values).map(|(_, metric)| metric)
    }
}

impl<L: Labels> Counters<L> {
    /// Counts one.
    pub fn inc(&self, labels: L) {
        self.add(labels, 1);
    }

    /// Counts several.
    pub fn add(&self, labels: L, count: u64) {
        if let Some(counter) = self.find(labels) {
            counter.inc_by(count);
        }
    }
}

impl<L: Labels> Gauges<L> {
    /// Sets one.
    pub fn set(&self, labels: L, value: f64) {
        if let Some(gauge) = self.find(labels) {
            gauge.set(value);
        }
    }
}

impl<L: Labels> Histograms<L> {
    /// Observes a value.
    pub fn observe(&self, labels: L, value: f64) {
        if let Some(histogram) = self.find(labels) {
            histogram.observe(value);
        }
    }
}

impl<L, M> fmt::Debug for Family<L, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Family").field("members", &self.members.len()).finish_non_exhaustive()
    }
}

// === impl Maker ===

impl Maker<'_> {
    fn add<C: Collector + Clone + 'static>(&self, metric: C) -> prometheus::Result<C> {
        self.0.register(Box::new(metric.clone()))?;
        Ok(metric)
    }

    pub(super) fn counter(&self, name: &str, help: &str) -> prometheus::Result<IntCounter> {
        self.add(IntCounter::with_opts(own(name, help))?)
    }

    pub(super) fn gauge(&self, name: &str, help: &str) -> prometheus::Result<Gauge> {
        self.add(Gauge::with_opts(own(name, help))?)
    }

    pub(super) fn histogram(&self, name: &str, help: &str, buckets: &[f64]) -> prometheus::Result<Histogram> {
        self.add(Histogram::with_opts(HistogramOpts::from(own(name, help)).buckets(buckets.to_vec()))?)
    }

    pub(super) fn counters<L: Labels>(&self, name: &str, help: &str) -> prometheus::Result<Counters<L>> {
        let vec = self.add(IntCounterVec::new(own(name, help), L::NAMES)?)?;
        Family::new(|values| vec.get_metric_with_label_values(values))
    }

    pub(super) fn gauges<L: Labels>(&self, name: &str, help: &str) -> prometheus::Result<Gauges<L>> {
        let vec = self.add(GaugeVec::new(own(name, help), L::NAMES)?)?;
        Family::new(|values| vec.get_metric_with_label_values(values))
    }

    pub(super) fn histograms<L: Labels>(
        &self,
        name: &str,
        help: &str,
        buckets: &[f64],
    ) -> prometheus::Result<Histograms<L>> {
        let opts = HistogramOpts::from(own(name, help)).buckets(buckets.to_vec());
        let vec = self.add(HistogramVec::new(opts, L::NAMES)?)?;
        Family::new(|values| vec.get_metric_with_label_values(values))
    }

    /// A gauge that is always 1 and says something in its labels.
    pub(super) fn info(&self, name: &str, help: &str, labels: &[(&str, &str)]) -> prometheus::Result<()> {
        let opts = labels.iter().fold(own(name, help), |opts, (key, value)| opts.const_label(*key, *value));
        self.add(Gauge::with_opts(opts)?)?.set(1.0);
        Ok(())
    }

    /// A gauge of the standard set, without our prefix.
    pub(super) fn standard_gauge(&self, name: &str, help: &str) -> prometheus::Result<Gauge> {
        self.add(Gauge::with_opts(Opts::new(name, help))?)
    }

    /// A counter of the standard set, without our prefix.
    pub(super) fn standard_counter(&self, name: &str, help: &str) -> prometheus::Result<Counter> {
        self.add(Counter::with_opts(Opts::new(name, help))?)
    }
}

fn own(name: &str, help: &str) -> Opts {
    Opts::new(name, help).namespace(PREFIX)
}
