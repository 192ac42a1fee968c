//! Harvester's own programs against a running node. They are no part of this project: a test
//! takes those whose place a variable names.
//!
//! `TERRAFORM_PROVIDER` is the folder of `terraform-provider-harvester`; `terraform` is in the path.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::harness::{Node, Sheaf, poll};

const KEY: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f me@here";
const LONGHORN: &str = "/apis/longhorn.io/v1beta2/namespaces/longhorn-system";
const PASSWORD: &str = "password1234";
/// The exit status of `terraform plan -detailed-exitcode` if nothing is to be changed.
const NO_CHANGES: i32 = 0;

/// A folder with one configuration, and the provider of the variable.
struct Terraform {
    folder: PathBuf,
    variables: Vec<String>,
}

impl Terraform {
    fn new(folder: PathBuf, configuration: &str, variables: &[(&str, &str)]) -> Self {
        let provider = std::env::var("TERRAFORM_PROVIDER")
            .expect("TERRAFORM_PROVIDER has to name the folder of terraform-provider-harvester");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("main.tf"), configuration).unwrap();
        let overrides = format!("dev_overrides {{ \"harvester/harvester\" = {provider:?} }}");
        let settings = format!("provider_installation {{\n  {overrides}\n}}\n");
        fs::write(folder.join("terraformrc"), settings).unwrap();
        let variables = variables.iter().map(|(name, value)| format!("-var={name}={value}"));
        Self { folder, variables: variables.collect() }
    }

    /// Runs a step, and answers with its exit code.
    #[track_caller]
    fn run(&self, step: &[&str], further: &[&str]) -> i32 {
        let output = Command::new("terraform")
            .current_dir(&self.folder)
            .env("TF_CLI_CONFIG_FILE", self.folder.join("terraformrc"))
            .args(step)
            .args(["-no-color", "-input=false"])
            .args(&self.variables)
            .args(further)
            .output()
            .expect("terraform has to be in the path");
        let said = String::from_utf8_lossy(&output.stdout);
        let complaint = String::from_utf8_lossy(&output.stderr);
        let code = output.status.code().unwrap_or(-1);
        if code != 0 {
            eprintln!("terraform {step:?} ended with {code}:\n{said}\n{complaint}");
        }
        code
    }

    /// Applies, and there is nothing left to do then.
    #[track_caller]
    fn apply(&self, further: &[&str]) {
        assert_eq!(self.run(&["apply", "-auto-approve"], further), 0);
        assert_eq!(self.run(&["plan", "-detailed-exitcode"], further), NO_CHANGES);
    }

    #[track_caller]
    fn destroy(&self) {
        assert_eq!(self.run(&["destroy", "-auto-approve"], &[]), 0);
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
#[ignore = "takes minutes, and needs Harvester's Terraform provider"]
fn terraform_applies_changes_and_destroys_its_resources() {
    let node = Node::start();
    let http = node.sheaf.http();
    let setting = format!("{LONGHORN}/settings/storage-minimal-available-percentage");
    poll("settings can be changed", || {
        let reply = http.merge(&setting, &json!({"value": "0"}));
        if reply.status == 200 { Ok(()) } else { Err(reply.text()) }
    });
    let image = node.disk("guest.img");
    let terraform = Terraform::new(
        node.sheaf.scratch("terraform"),
        include_str!("harvester_clients/resources.tf"),
        &[
            ("kubeconfig", text(&node.sheaf.kubeconfig())),
            ("image", text(&image)),
            ("public_key", KEY),
        ],
    );
    terraform.apply(&[]);
    let balancer =
        "/apis/loadbalancer.harvesterhci.io/v1beta1/namespaces/default/loadbalancers/web";
    assert_eq!(http.get(balancer).ok()["status"]["address"], "192.0.2.10");
    terraform.apply(&["-var=second=true"]);
    let machine = http.get("/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances/guest");
    assert_eq!(machine.ok()["spec"]["domain"]["cpu"]["cores"], 2);
    terraform.destroy();
    for kind in [
        "api/v1/namespaces/default/persistentvolumeclaims",
        "apis/kubevirt.io/v1/namespaces/default/virtualmachines",
        "apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachineimages",
    ] {
        let left = http.get(&format!("/{kind}")).ok();
        assert_eq!(left["items"], json!([]), "{kind}");
    }
}

#[test]
#[ignore = "needs Harvester's Terraform provider"]
fn terraform_logs_in_and_gets_a_kubeconfig() {
    let sheaf = Sheaf::with(&["--admin-password", PASSWORD]);
    let own = fs::read_to_string(sheaf.kubeconfig()).unwrap();
    let url = own.lines().find_map(|line| line.trim().strip_prefix("server: ")).unwrap();
    let url = url.trim_matches('"');
    let kubeconfig = sheaf.scratch("bootstrapped.kubeconfig");
    let terraform = Terraform::new(
        sheaf.scratch("terraform"),
        include_str!("harvester_clients/bootstrap.tf"),
        &[("url", url), ("password", PASSWORD), ("kubeconfig", text(&kubeconfig))],
    );
    terraform.apply(&[]);
    assert!(fs::read_to_string(&kubeconfig).unwrap().contains("kubeconfig-admin-"));
    terraform.destroy();
}
