//! Actions on virtual machines.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::machine_change::{self as change, ChangeError};
use super::{
    ActionTarget, Input, done, impossible, invalid, machine_device as device, migration, quota,
    storage_migration, suffix, template,
};
use crate::error::SteveError;
use crate::objects::ResourceCall;
use crate::reply::{self, SteveResult};
use crate::well_known::BACKUP_TARGET;

const ACTIONS: &str = "/apis/subresources.kubevirt.io/v1";
const HARVESTER: &str = "/apis/harvesterhci.io/v1beta1";
const QUOTA: &str = "harvesterhci.io/insufficient-resource-quota";

pub(super) async fn run(
    call: &ResourceCall<'_>,
    target: ActionTarget<'_>,
    action: &str,
    input: &Input,
) -> SteveResult {
    let machine = Machine { call, target };
    match action {
        "start" => machine.start().await?,
        "stop" => machine.stop().await?,
        "forceStop" => {
            let body = json!({"gracePeriod": 0});
            machine.power("virtualmachines", "stop", &body).await?;
        }
        "restart" => machine.power("virtualmachines", "restart", &json!({})).await?,
        "softreboot" | "pause" | "unpause" => {
            machine.power("virtualmachineinstances", action, &json!({})).await?;
        }
        "backup" => machine.backup(input).await?,
        // The client creates the object; the action only checks that it may.
        "snapshot" => drop(machine.read().await?),
        "restore" => machine.restore(input).await?,
        "createTemplate" => {
            let vm = machine.read().await?;
            template::create(call, target, &vm, input).await?;
        }
        "addVolume" => machine.add_volume(input).await?,
        "removeVolume" => machine.remove_volume(input).await?,
        "ejectCdRomVolume" => machine.eject(input).await?,
        "insertCdRomVolume" => machine.insert(input).await?,
        "addNic" => machine.add_nic(input).await?,
        "removeNic" => machine.remove_nic(input).await?,
        "findHotunpluggableNics" => {
            let vm = machine.read().await?;
            let found = json!({"interfaces": device::unpluggable_nics(&vm)});
            return Ok(reply::json(StatusCode::OK, &found));
        }
        "cpuAndMemoryHotplug" => machine.grow(input).await?,
        "updateResourceQuota" | "deleteResourceQuota" => {
            return quota::run(call, target, action, input).await;
        }
        "storageMigration" => storage_migration::start(call, target, input).await?,
        "cancelStorageMigration" => storage_migration::cancel(call, target).await?,
        "clone" => machine.clone(input).await?,
        "dismissInsufficientResourceQuota" => {
            let patch = json!({"metadata": {"annotations": {QUOTA: null}}});
            call.session.merge(target.path, &patch).await?;
        }
        "findMigratableNodes" => {
            machine.read().await?;
            let nodes = migration::nodes(call, target).await?;
            return Ok(reply::json(StatusCode::OK, &json!({"nodes": nodes})));
        }
        "abortMigration" => migration::abort(call, target).await?,
        _ => machine.migrate(input).await?,
    }
    Ok(done())
}

struct Machine<'a> {
    call: &'a ResourceCall<'a>,
    target: ActionTarget<'a>,
}

impl Machine<'_> {
    async fn read(&self) -> Result<Value, SteveError> {
        self.call.session.get(self.target.path).await
    }

    async fn write(&self, vm: &Value) -> Result<(), SteveError> {
        let bytes = serde_json::to_vec(vm).unwrap_or_default();
        let kind = "application/json";
        self.call.session.send(Method::PUT, self.target.path, kind, &bytes, kind).await.map(drop)
    }

    /// A subresource of the machine or its instance.
    async fn power(&self, plural: &str, what: &str, body: &Value) -> Result<(), SteveError> {
        let ActionTarget { namespace, name, .. } = self.target;
        let path = format!("{ACTIONS}/namespaces/{namespace}/{plural}/{name}/{what}");
        let outcome = self.call.session.act(&path, body).await;
        outcome.map_err(|error| match (error.status, plural) {
            // A machine that does not run.
            (StatusCode::NOT_FOUND, "virtualmachineinstances") => self.unable(what, &error),
            _ => self.failed(what, error),
        })
    }

    /// Refusals of rights and absent machines keep their code; the state of a machine is 500.
    fn failed(&self, what: &str, error: SteveError) -> SteveError {
        if matches!(error.status, StatusCode::FORBIDDEN | StatusCode::NOT_FOUND) {
            return error;
        }
        self.unable(what, &error)
    }

    fn unable(&self, what: &str, error: &SteveError) -> SteveError {
        let ActionTarget { namespace, name, .. } = self.target;
        impossible(format!("{what} virtual machine {namespace}/{name} failed, {}", error.message))
    }

    async fn start(&self) -> Result<(), SteveError> {
        let vm = self.read().await?;
        for name in change::claims(&vm) {
            let claim = self.find_claim(&name).await?;
            if claim.is_some_and(|claim| is_resizing(&claim)) {
                return Err(impossible(format!(
                    "can not start the VM {}/{} which has a resizing volume {name}",
                    self.target.namespace, self.target.name
                )));
            }
        }
        self.switch("start", change::start(&vm)).await
    }

    async fn stop(&self) -> Result<(), SteveError> {
        let vm = self.read().await?;
        self.switch("stop", change::stop(&vm)).await
    }

    /// Patches the machine. A caller who may not, and for whom there is no patch, uses the
    /// subresource, which needs a right of its own.
    async fn switch(&self, what: &str, patch: Option<Value>) -> Result<(), SteveError> {
        if let Some(patch) = patch {
            match self.call.session.merge(self.target.path, &patch).await {
                Err(error) if error.status == StatusCode::FORBIDDEN => {}
                outcome => return outcome.map(drop).map_err(|error| self.failed(what, error)),
            }
        }
        self.power("virtualmachines", what, &json!({})).await
    }

    async fn migrate(&self, input: &Input) -> Result<(), SteveError> {
        self.read().await?;
        migration::start(self.call, self.target, input.text("nodeName")).await
    }

    async fn backup(&self, input: &Input) -> Result<(), SteveError> {
        if input.text("name").is_empty() {
            return Err(invalid("Parameter `name` is required"));
        }
        let mut spec = json!({"type": "backup", "source": self.reference()});
        match input.text("fsFreezeDeadline") {
            "" => {}
            deadline if deadline.starts_with('-') => {
                return Err(invalid("Parameter `fsFreezeDeadline` must not be negative"));
            }
            deadline => spec["fsFreezeDeadline"] = json!(deadline),
        }
        self.require_backup_target().await?;
        let body = json!({
            "apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineBackup",
            "metadata": {"name": input.text("name"), "namespace": self.target.namespace},
            "spec": spec,
        });
        let path =
            format!("{HARVESTER}/namespaces/{}/virtualmachinebackups", self.target.namespace);
        let outcome = self.call.session.post(&path, &body).await;
        outcome.map(drop).map_err(|error| match error.status {
            StatusCode::FORBIDDEN => error,
            _ => impossible(format!("failed to create VM backup, error: {}", error.message)),
        })
    }

    /// The setting is read as the server: that there is a target is reported to all who may
    /// back a machine up, and nothing else of it is.
    async fn require_backup_target(&self) -> Result<(), SteveError> {
        let setting = self.call.steve.setting(BACKUP_TARGET).await?;
        let value = setting["value"].as_str().unwrap_or_default();
        if matches!(value, "" | "{}") {
            return Err(impossible("backup target is invalid"));
        }
        Ok(())
    }

    fn reference(&self) -> Value {
        json!({"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": self.target.name})
    }

    async fn restore(&self, input: &Input) -> Result<(), SteveError> {
        let (name, backup) = (input.text("name"), input.text("backupName"));
        if name.is_empty() || backup.is_empty() {
            return Err(invalid("Parameter name and backupName are required"));
        }
        let namespace = self.target.namespace;
        let body = json!({
            "apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineRestore",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "target": self.reference(), "virtualMachineBackupName": backup,
                "virtualMachineBackupNamespace": namespace, "newVM": false,
                "keepMacAddress": input.flag("keepMacAddress"),
                "haltAfterRestore": input.flag("haltAfterRestore"),
            },
        });
        let path = format!("{HARVESTER}/namespaces/{namespace}/virtualmachinerestores");
        self.call.session.post(&path, &body).await.map(drop)
    }

    async fn claim(&self, name: &str) -> Result<Value, SteveError> {
        let namespace = self.target.namespace;
        let path = format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}");
        self.call.session.get(&path).await
    }

    async fn find_claim(&self, name: &str) -> Result<Option<Value>, SteveError> {
        let namespace = self.target.namespace;
        let path = format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}");
        match self.call.session.find(&path).await {
            // Rights to volumes are not needed to start a machine.
            Err(error) if error.status == StatusCode::FORBIDDEN => Ok(None),
            found => found,
        }
    }

    async fn insert(&self, input: &Input) -> Result<(), SteveError> {
        // Clients write the parameter both ways.
        let device = match input.text("DeviceName") {
            "" => input.text("deviceName"),
            device => device,
        };
        let id = input.text("imageName");
        let mut vm = self.read().await?;
        let Some((namespace, name)) = id.split_once('/') else {
            let message = format!("invalid image name: {id}, should be namespace/name");
            return Err(invalid(&message));
        };
        let path = format!("{HARVESTER}/namespaces/{namespace}/virtualmachineimages/{name}");
        let image = self.call.session.get(&path).await?;
        let claim = format!("{}-{device}-{}", self.target.name, suffix());
        device::insert_cdrom(&mut vm, device, id, &image, &claim)
            .map_err(|error| invalid(&error.to_string()))?;
        self.write(&vm).await
    }

    async fn add_nic(&self, input: &Input) -> Result<(), SteveError> {
        let (interface, network) = (input.text("interfaceName"), input.text("networkName"));
        if interface.is_empty() || network.is_empty() {
            return Err(invalid("Parameter `interfaceName` and `networkName` are required"));
        }
        let (namespace, name) = network.split_once('/').unwrap_or((self.target.namespace, network));
        let path = format!(
            "/apis/k8s.cni.cncf.io/v1/namespaces/{namespace}/network-attachment-definitions/{name}"
        );
        let definition = self.call.session.get(&path).await?;
        let mut vm = self.read().await?;
        device::check_network(network, &definition)
            .and_then(|()| device::add_nic(&mut vm, interface, network, input.text("macAddress")))
            .map_err(|error| impossible(error.to_string()))?;
        self.write(&vm).await
    }

    async fn remove_nic(&self, input: &Input) -> Result<(), SteveError> {
        let interface = input.text("interfaceName");
        if interface.is_empty() {
            return Err(invalid("Parameter `interfaceName` is required"));
        }
        let mut vm = self.read().await?;
        device::remove_nic(&mut vm, interface).map_err(|error| impossible(error.to_string()))?;
        self.write(&vm).await
    }

    async fn grow(&self, input: &Input) -> Result<(), SteveError> {
        let vm = self.read().await?;
        let patch = device::grow(&vm, input.number("sockets"), input.text("memory"))
            .map_err(|error| invalid(&error.to_string()))?;
        self.call.session.merge(self.target.path, &patch).await.map(drop)
    }

    async fn add_volume(&self, input: &Input) -> Result<(), SteveError> {
        let (disk, source) = (input.text("diskName"), input.text("volumeSourceName"));
        if disk.is_empty() || source.is_empty() {
            return Err(invalid("Parameter `diskName` and `volumeName` are required"));
        }
        let claim = self.claim(source).await?;
        if claim["status"]["phase"] != "Bound" {
            return Err(invalid(&format!("volme {source} not bound yet")));
        }
        let mut vm = self.read().await?;
        change::add_volume(&mut vm, disk, &claim).map_err(|error| invalid(&error.to_string()))?;
        self.write(&vm).await
    }

    async fn remove_volume(&self, input: &Input) -> Result<(), SteveError> {
        let disk = input.text("diskName");
        if disk.is_empty() {
            return Err(invalid("Parameter `diskName` is required"));
        }
        let mut vm = self.read().await?;
        change::remove_volume(&mut vm, disk).map_err(|error| impossible(error.to_string()))?;
        self.write(&vm).await
    }

    async fn eject(&self, input: &Input) -> Result<(), SteveError> {
        let mut vm = self.read().await?;
        let claim = change::eject(&mut vm, input.text("deviceName"))
            .map_err(|error| invalid(&error.to_string()))?;
        self.write(&vm).await?;
        let namespace = self.target.namespace;
        let path = format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims/{claim}");
        let kind = "application/json";
        self.call.session.send(Method::DELETE, &path, kind, &[], kind).await.map(drop)
    }

    async fn clone(&self, input: &Input) -> Result<(), SteveError> {
        let target = input.text("targetVm");
        if target.is_empty() {
            return Err(invalid("Parameter targetVm are required"));
        }
        let vm = self.read().await?;
        let mut claims = Vec::new();
        for name in change::claims(&vm) {
            let claim = self.claim(&name).await?;
            claims.push((claim, format!("{target}-{}", suffix())));
        }
        let copy = change::clone(&vm, target, input.text("runStrategy"), &claims)
            .map_err(|error: ChangeError| invalid(&error.to_string()))?;
        let path =
            format!("/apis/kubevirt.io/v1/namespaces/{}/virtualmachines", self.target.namespace);
        self.call.session.post(&path, &copy).await.map(drop)
    }
}

fn is_resizing(claim: &Value) -> bool {
    let conditions = claim["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|own| own["type"] == "Resizing" && own["status"] == "True")
}
