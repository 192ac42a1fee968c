//! Dumps of a guest's memory into a claim, as `virtctl memory-dump` requests them.

use serde_json::{Value, json};

use super::copies::download;
use super::lab::{CLAIMS, Lab, MACHINES, VMIS, VMS, claim, machine};
use crate::harness::{assemble, assert_has, poll};

#[test]
fn the_memory_of_a_guest_is_dumped_to_a_claim_and_downloaded() {
    let lab = Lab::start();
    let http = lab.node.sheaf.http();
    let root = lab.claim("root", "16Mi");
    lab.write_pulse(&root);
    lab.node.kubectl().apply(&machine("a", "root", "Always"));
    let request = |path: &str, body: Value| http.put(&format!("{MACHINES}/a/{path}"), &body);
    lab.node.until(&format!("{VMIS}/a"), "/status/phase", "Running");
    lab.node.until_said("boot 1");

    // Refused requests change nothing.
    lab.claim("small", "64Mi");
    let small = request("memorydump", json!({"claimName": "small"}));
    assert_has(small.refused(409), "pvc size [64Mi] should be bigger then [116Mi]");
    let missing = request("memorydump", json!({"claimName": "absent"}));
    assert_has(missing.refused(404), "persistentvolumeclaim.kubevirt.io \"absent\" not found");
    assert_has(request("memorydump", json!({})).refused(400), "requires claim name to be set");
    assert_has(request("removememorydump", json!({})).refused(409), "no association found");

    // virtctl makes the claim as large as the requested memory and 100 MiB: the guest has more.
    // Its claim is not bound yet when the dump is requested.
    http.post(CLAIMS, &claim("dump", "104Mi", "harvester-longhorn")).ok();
    assert_eq!(request("memorydump", json!({"claimName": "dump"})).status, 202);
    let phase = "/status/memoryDumpRequest/phase";
    let vm = lab.node.until(&format!("{VMS}/a"), phase, "Completed");
    let file = vm["status"]["memoryDumpRequest"]["fileName"].as_str().unwrap();
    assert!(file.starts_with("a-dump-") && file.ends_with(".memory.dump"), "{file}");
    let dumped = http.get(&format!("{CLAIMS}/dump")).ok();
    assert_eq!(dumped["metadata"]["annotations"]["kubevirt.io/memory-dump"], file);
    assert_eq!(dumped["spec"]["resources"]["requests"]["storage"], "116Mi");
    let vmi = http.get(&format!("{VMIS}/a")).ok();
    assert_eq!(vmi["spec"]["volumes"].as_array().unwrap().len(), 1, "{vmi}");

    let dump = download(&lab, "default", "dump", 0);
    assert_eq!(dump.body[..4], *b"\x7fELF");
    // The guest's boot sector is in its memory.
    let sector = assemble("pulse");
    let found = dump.body.windows(64).any(|window| window == &sector[..64]);
    assert!(found, "the dump does not contain the guest's code");

    // The guest goes on, and can be dumped again to the same claim.
    poll("the guest runs", || {
        let paused = http.get(&format!("{VMIS}/a")).ok().to_string().contains("\"Paused\"");
        if paused { Err("it is paused".to_owned()) } else { Ok(()) }
    });
    assert_eq!(request("memorydump", json!({})).status, 202);
    lab.node.until(&format!("{VMS}/a"), phase, "Completed");
    assert_eq!(request("removememorydump", json!({})).status, 202);
    poll("the association is removed", || {
        let vm = http.get(&format!("{VMS}/a")).ok();
        if vm["status"]["memoryDumpRequest"].is_null() { Ok(()) } else { Err(vm.to_string()) }
    });
    http.get(&format!("{CLAIMS}/dump")).ok();
    http.delete(&format!("{VMS}/a")).ok();
    lab.node.until_empty();
}
