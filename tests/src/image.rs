//! A container image without a registry: static busybox as an OCI image layout in a tar archive.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::command::run;

/// Name under which the image is imported.
pub(crate) const IMAGE: &str = "reaper.test/busybox:1";

const LIMIT: Duration = Duration::from_secs(30);
const APPLETS: [&str; 4] = ["sh", "sleep", "cat", "true"];

/// Makes a root filesystem below the directory and returns its path.
pub(crate) fn rootfs(dir: &Path) -> Result<PathBuf> {
    let rootfs = dir.join("rootfs");
    let bin = rootfs.join("bin");
    fs::create_dir_all(&bin).context("mkdir rootfs/bin")?;
    let busybox = ["/bin/busybox", "/usr/bin/busybox"].into_iter().find(|path| Path::new(path).is_file());
    fs::copy(busybox.context("no busybox: install busybox-static")?, bin.join("busybox"))
        .context("copy busybox")?;
    for applet in APPLETS {
        symlink("busybox", bin.join(applet)).with_context(|| format!("link {applet}"))?;
    }
    Ok(rootfs)
}

/// Packs a root filesystem as an image and returns the archive for `ctr images import`.
pub(crate) fn archive(dir: &Path, rootfs: &Path) -> Result<PathBuf> {
    let layout = dir.join("image");
    let blobs = layout.join("blobs/sha256");
    fs::create_dir_all(&blobs).context("mkdir blobs")?;
    let layer = dir.join("layer.tar");
    tar(rootfs, &layer, &["bin"])?;
    let layer = fs::read(&layer).context("read the layer")?;
    let config = json!({
        "architecture": architecture(), "os": "linux",
        "config": {"Cmd": ["sleep", "1000"], "Env": ["PATH=/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [digest(&layer)]},
    });
    let config = store(&blobs, "application/vnd.oci.image.config.v1+json", config.to_string().as_bytes())?;
    let layer = store(&blobs, "application/vnd.oci.image.layer.v1.tar", &layer)?;
    let kind = "application/vnd.oci.image.manifest.v1+json";
    let manifest = json!({"schemaVersion": 2, "mediaType": kind, "config": config, "layers": [layer]});
    let mut manifest = store(&blobs, kind, manifest.to_string().as_bytes())?;
    if let Some(fields) = manifest.as_object_mut() {
        fields.insert("annotations".to_owned(), json!({"io.containerd.image.name": IMAGE}));
    }
    let index = json!({"schemaVersion": 2, "manifests": [manifest]});
    fs::write(layout.join("index.json"), index.to_string()).context("write index.json")?;
    fs::write(layout.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).context("write oci-layout")?;
    let archive = dir.join("image.tar");
    tar(&layout, &archive, &["oci-layout", "index.json", "blobs"])?;
    Ok(archive)
}

/// Lower-case hexadecimal SHA-256.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in Sha256::digest(bytes) {
        for digit in [byte >> 4, byte & 15] {
            text.extend(char::from_digit(u32::from(digit), 16));
        }
    }
    text
}

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", sha256(bytes))
}

fn store(blobs: &Path, media_type: &str, bytes: &[u8]) -> Result<serde_json::Value> {
    fs::write(blobs.join(sha256(bytes)), bytes).context("write a blob")?;
    Ok(json!({"mediaType": media_type, "digest": digest(bytes), "size": bytes.len()}))
}

fn tar(from: &Path, archive: &Path, what: &[&str]) -> Result<()> {
    let mut tar = Command::new("tar");
    tar.arg("-C").arg(from).arg("-cf").arg(archive).args(what);
    run(&mut tar, LIMIT)?.expect_success("tar").map(drop)
}

const fn architecture() -> &'static str {
    if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" }
}
