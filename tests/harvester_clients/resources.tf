# One of each resource of Harvester's Terraform provider that a single node without spare network
# cards has. With second=true, what can be changed is changed.

terraform {
  required_providers {
    harvester = { source = "harvester/harvester" }
  }
}

variable "kubeconfig" { type = string }
variable "image" { type = string }
variable "public_key" { type = string }
variable "second" {
  type    = bool
  default = false
}

locals {
  text = var.second ? "two" : "one"
}

provider "harvester" {
  kubeconfig = var.kubeconfig
}

resource "harvester_ssh_key" "key" {
  name        = "key"
  namespace   = "default"
  description = local.text
  public_key  = var.public_key
}

resource "harvester_cloudinit_secret" "seed" {
  name      = "seed"
  namespace = "default"
  user_data = "#cloud-config\nhostname: ${local.text}\n"
}

resource "harvester_storageclass" "one" {
  name        = "one-replica"
  description = local.text
  parameters = {
    migratable          = "true"
    numberOfReplicas    = "1"
    staleReplicaTimeout = "30"
  }
}

resource "harvester_setting" "grace" {
  name  = "default-vm-termination-grace-period-seconds"
  value = var.second ? "20" : "10"
}

resource "harvester_image" "guest" {
  name               = "guest"
  namespace          = "default"
  display_name       = "guest.img"
  description        = local.text
  source_type        = "upload"
  file_path          = var.image
  storage_class_name = harvester_storageclass.one.name
}

resource "harvester_volume" "data" {
  name               = "data"
  namespace          = "default"
  size               = var.second ? "20Mi" : "10Mi"
  storage_class_name = harvester_storageclass.one.name
}

resource "harvester_volume" "copy" {
  name      = "copy"
  namespace = "default"
  size      = "10Mi"
  image     = harvester_image.guest.id
}

resource "harvester_virtualmachine" "guest" {
  name                 = "guest"
  namespace            = "default"
  description          = local.text
  restart_after_update = true
  tags                 = { app = "web" }
  cpu                  = var.second ? 2 : 1
  memory               = "128Mi"
  run_strategy         = "RerunOnFailure"
  machine_type         = "q35"

  network_interface {
    name = "default"
  }
  disk {
    name        = "root"
    type        = "disk"
    size        = "10Mi"
    bus         = "virtio"
    boot_order  = 1
    image       = harvester_image.guest.id
    auto_delete = true
  }
  disk {
    name                 = "data"
    type                 = "disk"
    bus                  = "scsi"
    existing_volume_name = harvester_volume.data.name
    auto_delete          = false
    hot_plug             = true
  }
}

resource "harvester_ippool" "services" {
  name = "services"
  range {
    start   = "192.0.2.10"
    end     = var.second ? "192.0.2.30" : "192.0.2.20"
    subnet  = "192.0.2.0/24"
    gateway = "192.0.2.1"
  }
  selector {
    priority = 100
    scope {
      namespace = "default"
    }
  }
}

resource "harvester_loadbalancer" "web" {
  name          = "web"
  namespace     = "default"
  description   = local.text
  depends_on    = [harvester_virtualmachine.guest]
  ipam          = "pool"
  ippool        = harvester_ippool.services.name
  workload_type = "vm"
  listener {
    name         = "http"
    port         = var.second ? 8080 : 80
    protocol     = "tcp"
    backend_port = 8080
  }
  backend_selector {
    key    = "harvesterhci.io/vmName"
    values = ["guest"]
  }
}

resource "harvester_schedule_backup" "daily" {
  name       = "daily"
  namespace  = "default"
  depends_on = [harvester_virtualmachine.guest]
  vm_name    = "default/guest"
  schedule   = "0 2 * * *"
  retain     = var.second ? 5 : 7
  enabled    = false
}
