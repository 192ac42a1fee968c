//! The controllers that every cluster needs, whether or not it runs machines: those of upstream's
//! controller manager that make sense without pods.

use std::sync::Arc;

use client::Update;
use tokio::sync::mpsc;

use super::{ControllerGroup, QUEUE, Started};
use crate::certificate::{self, CertificateSigner};
use crate::hub::ChangeOutlet;
use crate::service_account::TokenMinter;
use crate::{
    api_endpoints, disruption, endpoints, garbage, horizontal_pod_autoscaler, namespace, node,
    quota, role_aggregation, root_ca, service_account, storage_protection,
};

impl Started<'_> {
    /// Starts the garbage collector, and returns its channel for updates.
    pub(super) fn collector(&self) -> mpsc::Sender<Update> {
        let (collector, collected) = mpsc::channel(QUEUE);
        let stop = self.tasks.stop_signal();
        let client = self.clients.of(ControllerGroup::Garbage);
        let garbage = garbage::run(client, self.catalog.clone(), collected, stop);
        self.tasks.spawn("garbage", garbage);
        collector
    }

    /// Those that every cluster needs.
    pub(super) fn cluster(
        &self,
        root_ca: &str,
        minter: &Arc<dyn TokenMinter>,
        outlets: &mut Vec<ChangeOutlet>,
    ) {
        let client = || self.clients.of(ControllerGroup::Cluster);
        let catalog = || self.catalog.clone();
        let root_ca = || root_ca.to_owned();

        let namespaces = self.clients.of(ControllerGroup::Namespaces);
        let finalizer = namespace::NamespaceReconciler { client: namespaces, catalog: catalog() };
        outlets.push(self.add("namespace", namespace::Terminating::default(), finalizer));
        let creator = service_account::ServiceAccountReconciler { client: client() };
        outlets.push(self.add("service-account", service_account::Accounts::default(), creator));
        let publisher = root_ca::RootCaReconciler { client: client(), root_ca: root_ca() };
        outlets.push(self.add("root-ca", root_ca::Published::default(), publisher));
        let aggregator =
            role_aggregation::Aggregator { client: self.clients.of(ControllerGroup::Roles) };
        outlets.push(self.add("role-aggregation", role_aggregation::Roles, aggregator));
        let counter =
            quota::QuotaReconciler::new(self.clients.of(ControllerGroup::Quotas), catalog());
        outlets.push(self.add("quota", quota::Quotas::default(), counter));
        let protector = storage_protection::StorageProtectionReconciler { client: client() };
        let waiting = storage_protection::Waiting::default();
        outlets.push(self.add("storage-protection", waiting, protector));
        let services = endpoints::Services::default();
        outlets.push(self.add(
            "endpoints",
            services,
            endpoints::EndpointsReconciler::new(client()),
        ));
        outlets.push(self.add("node", node::Nodes, node::NodeReconciler::new(client())));
        outlets.push(self.add(
            "api-endpoints",
            node::Nodes,
            api_endpoints::ApiEndpointsReconciler::new(client()),
        ));
        let counter = disruption::DisruptionReconciler::new(client());
        outlets.push(self.add("disruption", disruption::Budgets::default(), counter));
        let scaling = self.clients.of(ControllerGroup::Autoscaling);
        let autoscaler = horizontal_pod_autoscaler::AutoscalerReconciler::new(scaling, catalog());
        outlets.push(self.add(
            "horizontal-pod-autoscaler",
            horizontal_pod_autoscaler::Autoscalers,
            autoscaler,
        ));

        let (client, minter) = (|| self.clients.of(ControllerGroup::Tokens), Arc::clone(minter));
        let filler =
            service_account::TokenSecretReconciler { client: client(), root_ca: root_ca(), minter };
        let mut tokens = self.add("token", service_account::Tokens, filler);
        tokens.wants = service_account::concerns_tokens;
        let secrets = tokens.touches.clone();
        let stop = self.tasks.stop_signal();
        self.tasks.spawn(
            "token-secrets",
            service_account::watch_secrets(client(), catalog(), secrets, stop),
        );
        outlets.push(tokens);
    }

    /// Starts the signer of certificate requests.
    pub(super) fn certificates(
        &self,
        signer: &Arc<dyn CertificateSigner>,
        outlets: &mut Vec<ChangeOutlet>,
    ) {
        let client = self.clients.of(ControllerGroup::Certificates);
        let authority = certificate::Authority::new(client, Arc::clone(signer));
        outlets.push(self.add("certificate", certificate::CertificateRequestMapper, authority));
    }
}
