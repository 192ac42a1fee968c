//! Packs `ui/dist`, the built pages of the dashboard, into a table for the binary. Does nothing
//! but that: no network, no other tools, and no failure where the folder is missing.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use flate2::Compression;
use flate2::write::GzEncoder;

fn main() -> io::Result<()> {
    let variable = |name: &str| env::var_os(name).map(PathBuf::from).unwrap_or_default();
    let source = variable("CARGO_MANIFEST_DIR").join("../../../ui/dist");
    let out = variable("OUT_DIR");
    println!("cargo::rerun-if-changed={}", source.display());
    let mut files = Vec::new();
    if source.is_dir() {
        collect(&source, "", &mut files)?;
    } else {
        println!("cargo::warning=ui/dist is missing: the dashboard is left out (see make ui)");
    }
    files.sort();
    let mut table = String::from("pub(crate) static FILES: &[Asset] = &[\n");
    for (number, (name, path)) in files.iter().enumerate() {
        let packed = out.join(format!("{number}.gz"));
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(&fs::read(path)?)?;
        fs::write(&packed, encoder.finish()?)?;
        let _ = writeln!(
            table,
            "    Asset {{ name: {name:?}, gzip: include_bytes!({:?}) }},",
            packed.display().to_string()
        );
    }
    table.push_str("];\n");
    fs::write(out.join("files.rs"), table)
}

fn collect(folder: &Path, prefix: &str, files: &mut Vec<(String, PathBuf)>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            collect(&entry.path(), &format!("{name}/"), files)?;
        } else {
            files.push((name, entry.path()));
        }
    }
    Ok(())
}
