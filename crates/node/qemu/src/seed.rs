//! Small read-only media for guests: cloud-init seeds, and files from configuration objects.
//!
//! The image is ISO 9660 with a Joliet tree beside it. Linux and Windows read the Joliet names,
//! which are the given ones; the plain tree has short names in capitals, for firmware and the
//! like. The same files always give the same bytes.
//!
//! ```text
//! sector 16  primary volume   17 Joliet volume   18 end of volumes
//!        19  path tables: primary L and M, Joliet L and M
//!         …  folders of both trees, then the files, each shared by both
//! ```

mod iso;
mod tree;

pub use tree::SeedError;

/// One file of a medium.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeedFile {
    /// With `/` between folders; at most eight levels.
    pub path: String,
    pub content: Vec<u8>,
}

impl SeedFile {
    pub fn new(path: impl Into<String>, content: impl Into<Vec<u8>>) -> Self {
        Self { path: path.into(), content: content.into() }
    }
}

/// A medium with this label and these files.
pub fn medium(label: &str, files: &[SeedFile]) -> Result<Vec<u8>, SeedError> {
    let tree = tree::Tree::of(files)?;
    iso::write(label, &tree, files)
}

/// The files that cloud-init's NoCloud source reads.
pub fn no_cloud(
    user_data: &[u8],
    meta_data: &[u8],
    network_config: Option<&[u8]>,
) -> Result<Vec<u8>, SeedError> {
    let mut files =
        vec![SeedFile::new("user-data", user_data), SeedFile::new("meta-data", meta_data)];
    files.extend(network_config.map(|config| SeedFile::new("network-config", config)));
    medium("cidata", &files)
}

/// The files that cloud-init's ConfigDrive source reads, in OpenStack's layout.
pub fn config_drive(
    user_data: &[u8],
    meta_data: &[u8],
    network_data: Option<&[u8]>,
) -> Result<Vec<u8>, SeedError> {
    let file = |name: &str, content| SeedFile::new(format!("openstack/latest/{name}"), content);
    let mut files = vec![file("user_data", user_data), file("meta_data.json", meta_data)];
    files.extend(network_data.map(|data| file("network_data.json", data)));
    medium("config-2", &files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::run;
    use std::process::Command;

    fn isoinfo(image: &[u8], arguments: &[&str]) -> String {
        ask(image, Command::new("isoinfo").args(arguments).arg("-i"))
    }

    fn ask(image: &[u8], command: &mut Command) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("seed.iso");
        std::fs::write(&path, image).unwrap();
        run(command.arg(&path))
    }

    #[test]
    fn a_seed_has_its_label_and_its_files_under_their_names() {
        let image = no_cloud(b"#cloud-config\n", b"instance-id: a\n", Some(b"version: 2\n"));
        let image = image.unwrap();
        let about = isoinfo(&image, &["-d"]);
        assert!(about.contains("Volume id: cidata"), "{about}");
        assert!(about.contains("Joliet with UCS level 3 found"), "{about}");
        // The label that udev reads, and that busybox reads in guests without udev.
        let label = ask(&image, Command::new("blkid").args(["-p", "-o", "value", "-s", "LABEL"]));
        assert_eq!(label.trim(), "cidata");
        assert!(image.len() > 0x11000, "busybox reads that much before it decides");
        let listed = isoinfo(&image, &["-J", "-f"]);
        assert_eq!(
            listed.lines().collect::<Vec<_>>(),
            ["/meta-data", "/network-config", "/user-data"]
        );
        assert_eq!(isoinfo(&image, &["-J", "-x", "/user-data"]), "#cloud-config\n");
        assert_eq!(isoinfo(&image, &["-J", "-x", "/meta-data"]), "instance-id: a\n");
        let plain = isoinfo(&image, &["-f"]);
        assert!(plain.contains("/USER_DAT.;1"), "{plain}");
        assert_eq!(isoinfo(&image, &["-x", "/USER_DAT.;1"]), "#cloud-config\n");
    }

    #[test]
    fn a_config_drive_has_folders() {
        let image = config_drive(b"user", b"{}", Some(b"[]")).unwrap();
        assert!(isoinfo(&image, &["-d"]).contains("Volume id: config-2"));
        let listed = isoinfo(&image, &["-J", "-f"]);
        for name in ["user_data", "meta_data.json", "network_data.json"] {
            assert!(listed.contains(&format!("/openstack/latest/{name}")), "{listed}");
        }
        assert_eq!(isoinfo(&image, &["-J", "-x", "/openstack/latest/user_data"]), "user");
    }

    #[test]
    fn many_files_with_alike_names_are_all_there() {
        let files: Vec<SeedFile> = (0..300)
            .map(|index| {
                let path = format!("same-beginning-{index:03}.config.yaml");
                SeedFile::new(path, format!("{index}").repeat(index))
            })
            .chain([SeedFile::new("empty", ""), SeedFile::new("ünïcode.txt", "é")])
            .collect();
        let image = medium("cfgdata", &files).unwrap();
        assert_eq!(image.len() % 2048, 0);
        let listed = isoinfo(&image, &["-J", "-f"]);
        assert_eq!(listed.lines().count(), files.len());
        let plain = isoinfo(&image, &["-f"]);
        let mut names: Vec<&str> = plain.lines().collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), files.len(), "short names differ");
        for index in [1, 150, 299] {
            let path = format!("/same-beginning-{index:03}.config.yaml");
            assert_eq!(isoinfo(&image, &["-J", "-x", &path]), format!("{index}").repeat(index));
        }
        assert_eq!(medium("cfgdata", &files).unwrap(), image, "the same bytes each time");
    }

    #[test]
    fn invalid_files_of_a_medium_are_refused_by_name() {
        let refuse = |files: &[SeedFile]| medium("x", files).unwrap_err().to_string();
        let twice = [SeedFile::new("a", ""), SeedFile::new("a", "")];
        assert_eq!(refuse(&twice), "there are two files called a");
        let under = [SeedFile::new("a", ""), SeedFile::new("a/b", "")];
        assert_eq!(refuse(&under), "a is a file and a folder");
        for bad in ["", "/a", "a//b", "a/", "../a", "./a", "a\0b", "a\nb", "a:b"] {
            let said = refuse(&[SeedFile::new(bad, "")]);
            assert!(said.starts_with("not a path for a file on a medium"), "{bad:?}: {said}");
        }
        let long = "x".repeat(104);
        assert!(refuse(&[SeedFile::new(long, "")]).contains("longer than 103"));
        let label = "y".repeat(33);
        assert!(medium(&label, &[]).unwrap_err().to_string().contains("label"));
    }
}
