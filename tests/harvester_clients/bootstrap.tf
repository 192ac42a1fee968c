# The first login, which writes a kubeconfig.

terraform {
  required_providers {
    harvester = { source = "harvester/harvester" }
  }
}

variable "url" { type = string }
variable "password" { type = string }
variable "kubeconfig" { type = string }

provider "harvester" {
  bootstrap = true
}

resource "harvester_bootstrap" "admin" {
  initial_password = "bootstrap-of-a-test"
  password         = var.password
  api_url          = var.url
  kubeconfig       = var.kubeconfig
}
