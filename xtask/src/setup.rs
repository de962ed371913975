//! placeholder

pub(crate) fn run() -> anyhow::Result<()> {
    anyhow::bail!("not built yet")
}
