//! Requests for a dump of a guest's memory: whether they are accepted, in upstream's words, and
//! what they write into the machine's status.
//!
//! Upstream takes only claims of volume mode Filesystem, because it stores the dump as a file
//! there. Here a dump is the content of the claim's image, so Block is as good.

use serde_json::{Value, json};

use super::{Patch, PatchTarget, add, name, running, test};
use crate::api::atom::Quantity;
use crate::refusal::{Refusal, RefusalSubject};
use crate::state::{list, text};
use crate::v1::VirtualMachineMemoryDumpRequest;

/// The size of a dump beside the guest's memory: upstream's figure, for headers and video memory.
const OVERHEAD: i64 = 100 << 20;
const STORAGE: &str = "/spec/resources/requests/storage";

/// The claim that a request means: the one that it names, or the one of the last dump.
pub fn dump_claim(vm: &Value, options: &Value) -> Result<String, Refusal> {
    let named = text(options, "/claimName");
    match (current(vm), named) {
        (None, "") => Err(Refusal::bad_request("Memory dump requires claim name to be set")),
        (Some(current), "") => Ok(current.claim_name),
        (Some(current), named) if current.claim_name != named => {
            let why = format!(
                "can't request memory dump for pvc [{named}] while pvc [{}] is still associated \
                 as the memory dump pvc",
                current.claim_name
            );
            Err(RefusalSubject::Machine.conflict(name(vm), &why))
        }
        (_, named) => Ok(named.to_owned()),
    }
}

/// An accepted request for a dump.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryDump {
    pub patch: Patch,
    /// The size that the claim has to grow to first, in bytes.
    pub grow_to: Option<i64>,
}

/// Requests a dump of the memory of `vmi` to `claim`, which [`dump_claim`] has named.
pub fn dump_memory(
    vm: &Value,
    vmi: Option<&Value>,
    claim_name: &str,
    claim: Option<&Value>,
) -> Result<MemoryDump, Refusal> {
    let vmi = vmi.ok_or_else(|| RefusalSubject::Instance.not_found(name(vm)))?;
    running(vmi, "VMI is not running")?;
    let claim = claim.ok_or_else(|| RefusalSubject::Claim.not_found(claim_name))?;
    let grow_to = check_claim(vmi, claim)?;
    if let Some(current) = current(vm) {
        let why = match current.phase.as_str() {
            "Completed" | "Failed" => None,
            "Dissociating" => Some(format!(
                "can't dump memory for pvc [{claim_name}] a remove memory dump request is in \
                 progress"
            )),
            _ => Some(format!("memory dump request for pvc [{claim_name}] already in progress")),
        };
        if let Some(why) = why {
            return Err(RefusalSubject::Machine.conflict(name(vm), &why));
        }
    }
    let patch = set(vm, &json!({"claimName": claim_name, "phase": "Associating"}));
    Ok(MemoryDump { patch, grow_to })
}

/// Requests that a machine forgets its last dump. The claim stays.
pub fn remove_memory_dump(vm: &Value) -> Result<Patch, Refusal> {
    let refuse = |why: String| Err(RefusalSubject::Machine.conflict(name(vm), &why));
    let Some(current) = current(vm) else {
        let why = "can't remove memory dump association for vm {}, no association found";
        return refuse(why.replace("{}", name(vm)));
    };
    let claim = &current.claim_name;
    if current.remove == Some(true) {
        return refuse(format!("memory dump remove request for pvc [{claim}] already exists"));
    }
    Ok(set(vm, &json!({"claimName": claim, "phase": "Dissociating", "remove": true})))
}

fn current(vm: &Value) -> Option<VirtualMachineMemoryDumpRequest> {
    let request = &vm["status"]["memoryDumpRequest"];
    serde_json::from_value(request.clone()).ok().filter(|_| request.is_object())
}

fn set(vm: &Value, request: &Value) -> Patch {
    let status = &vm["status"];
    let path = "/status/memoryDumpRequest";
    let operations = if status.is_object() {
        vec![test(path, &status["memoryDumpRequest"]), add(path, request)]
    } else {
        vec![add("/status", &json!({"memoryDumpRequest": request}))]
    };
    Patch::new(PatchTarget::MachineStatus, operations)
}

/// The refusal of a claim that is too small.
pub fn small_claim(claim: &str, size: &str, needed: i64) -> Refusal {
    let why = format!("pvc size [{size}] should be bigger then [{}Mi]", needed >> 20);
    RefusalSubject::Claim.conflict(claim, &why)
}

/// Upstream, and so virtctl when it creates the claim, reads only the memory that the instance
/// requests. A guest that has more needs a larger claim.
fn check_claim(vmi: &Value, claim: &Value) -> Result<Option<i64>, Refusal> {
    let modes = list(&claim["spec"]["accessModes"]);
    if !modes.is_empty() && modes.iter().all(|mode| mode == "ReadOnlyMany") {
        return Err(
            RefusalSubject::Claim.conflict(name(claim), "pvc access mode can't be read only")
        );
    }
    let Some(size) = bytes(claim, STORAGE) else { return Ok(None) };
    let domain = &vmi["spec"]["domain"];
    let requested = bytes(domain, "/resources/requests/memory").unwrap_or_default();
    let memory = bytes(domain, "/memory/guest").unwrap_or_default().max(requested);
    if size < requested.saturating_add(OVERHEAD) {
        let needed = memory.saturating_add(OVERHEAD);
        return Err(small_claim(name(claim), text(claim, STORAGE), needed));
    }
    let needed = memory.saturating_add(OVERHEAD);
    Ok((size < needed).then_some(needed))
}

fn bytes(object: &Value, at: &str) -> Option<i64> {
    Quantity(object.pointer(at)?.as_str()?.to_owned()).units()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vm(request: Value) -> Value {
        json!({"metadata": {"name": "m"}, "status": {"memoryDumpRequest": request}})
    }

    fn vmi(phase: &str) -> Value {
        json!({
            "metadata": {"name": "m"}, "status": {"phase": phase},
            "spec": {"domain": {"memory": {"guest": "256Mi"},
                "resources": {"requests": {"memory": "200Mi"}}}},
        })
    }

    fn claim(size: &str, mode: &str) -> Value {
        json!({"metadata": {"name": "c"}, "spec": {"accessModes": [mode],
            "resources": {"requests": {"storage": size}}}})
    }

    fn code_and_message<T>(result: Result<T, Refusal>) -> (u16, String) {
        let refusal = result.err().expect("it is refused");
        (refusal.code, refusal.message)
    }

    #[test]
    fn the_claim_is_the_one_that_is_named_or_the_last_one() {
        let none = vm(Value::Null);
        let last = vm(json!({"claimName": "c", "phase": "Completed"}));
        assert_eq!(dump_claim(&none, &json!({"claimName": "c"})), Ok("c".to_owned()));
        assert_eq!(dump_claim(&last, &json!({})), Ok("c".to_owned()));
        assert_eq!(
            code_and_message(dump_claim(&none, &json!({}))),
            (400, "Memory dump requires claim name to be set".to_owned())
        );
        let (code, message) = code_and_message(dump_claim(&last, &json!({"claimName": "d"})));
        assert_eq!(code, 409);
        assert!(message.ends_with(
            "can't request memory dump for pvc [d] while pvc [c] is still associated as the \
             memory dump pvc"
        ));
    }

    #[test]
    fn a_dump_needs_a_running_guest_and_a_claim_that_is_large_enough() {
        let machine = vm(Value::Null);
        let fits = claim("356Mi", "ReadWriteOnce");
        let asked =
            |vmi: Option<&Value>, claim: Option<&Value>| dump_memory(&machine, vmi, "c", claim);
        let running = vmi("Running");
        let dump = asked(Some(&running), Some(&fits)).unwrap();
        assert_eq!((dump.patch.target, dump.grow_to), (PatchTarget::MachineStatus, None));
        let short = claim("300Mi", "ReadWriteOnce");
        let grown = asked(Some(&running), Some(&short)).unwrap();
        assert_eq!(grown.grow_to, Some(356 << 20), "virtctl made it for the requested memory");
        assert_eq!(
            dump.patch.operations[1],
            json!({"op": "add", "path": "/status/memoryDumpRequest",
                "value": {"claimName": "c", "phase": "Associating"}})
        );
        for (vmi, claim, code, part) in [
            (None, Some(&fits), 404, "virtualmachineinstance.kubevirt.io \"m\" not found"),
            (Some(&vmi("Scheduled")), Some(&fits), 409, "VMI is not running"),
            (Some(&running), None, 404, "persistentvolumeclaim.kubevirt.io \"c\" not found"),
            (
                Some(&running),
                Some(&claim("299Mi", "ReadWriteOnce")),
                409,
                "pvc size [299Mi] should be bigger then [356Mi]",
            ),
            (
                Some(&running),
                Some(&claim("1Gi", "ReadOnlyMany")),
                409,
                "pvc access mode can't be read only",
            ),
        ] {
            let (found, message) = code_and_message(asked(vmi, claim));
            assert_eq!(found, code, "{message}");
            assert!(message.contains(part), "{message}");
        }
    }

    #[test]
    fn one_request_at_a_time_is_worked_on() {
        let (running, fits) = (vmi("Running"), claim("1Gi", "ReadWriteMany"));
        for (phase, part) in [
            ("Completed", None),
            ("Failed", None),
            ("InProgress", Some("memory dump request for pvc [c] already in progress")),
            ("Dissociating", Some("a remove memory dump request is in progress")),
        ] {
            let machine = vm(json!({"claimName": "c", "phase": phase}));
            let asked = dump_memory(&machine, Some(&running), "c", Some(&fits));
            match part {
                None => assert!(asked.is_ok(), "{phase}"),
                Some(part) => assert!(code_and_message(asked).1.contains(part), "{phase}"),
            }
        }
    }

    #[test]
    fn a_dump_is_removed_once() {
        let machine = vm(json!({"claimName": "c", "phase": "Completed"}));
        let patch = remove_memory_dump(&machine).unwrap();
        assert_eq!(
            patch.operations[1]["value"],
            json!({"claimName": "c", "phase": "Dissociating", "remove": true})
        );
        let (code, message) = code_and_message(remove_memory_dump(&vm(Value::Null)));
        assert_eq!(code, 409);
        assert!(message.contains("for vm m, no association found"), "{message}");
        let going = vm(json!({"claimName": "c", "phase": "Dissociating", "remove": true}));
        assert!(code_and_message(remove_memory_dump(&going)).1.contains("already exists"));
    }
}
