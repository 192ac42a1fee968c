//! ClusterNetworkPolicies of `policy.networking.k8s.io`: rules of administrators about connections of
//! guests, before and after those of namespaces. Types and names only, pure.
//!
//! The fields are those of upstream's v1alpha2. Peers of its experimental channel (`nodes`,
//! `domainNames`) are refused.

use crd::atom::{LabelSelector, ObjectMeta, Time};
use crd::record::record;

pub const GROUP: &str = "policy.networking.k8s.io";
pub const VERSION: &str = "v1alpha2";
pub const KIND: &str = "ClusterNetworkPolicy";
pub const PLURAL: &str = "clusternetworkpolicies";

record! {
    /// Rules of an administrator for the connections of machines in any namespace.
    ClusterNetworkPolicy {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// Guests that the policy selects, and its rules.
        spec: ClusterNetworkPolicySpec,
        /// Conditions, which upstream leaves to implementations; none is written here.
        status: Option<ClusterNetworkPolicyStatus>,
    }

    ClusterNetworkPolicySpec {
        /// Tier of the rules: those of Admin come before NetworkPolicies, those of Baseline after
        /// them, for guests that no NetworkPolicy selects.
        tier: String = {"enum": ["Admin", "Baseline"]},
        /// Precedence within the tier: policies with lower values come first. Among equal ones the
        /// name decides.
        priority: i32 = {"minimum": 0, "maximum": 1000},
        /// Guests that the policy selects.
        subject: PolicySubject,
        /// Rules about connections to these guests, in order; the first one that fits decides.
        ingress: Vec<PolicyIngressRule> = {"maxItems": 25},
        /// Rules about connections from these guests, in order; the first one that fits decides.
        egress: Vec<PolicyEgressRule> = {"maxItems": 25},
    }

    PolicySubject: {"minProperties": 1, "maxProperties": 1} {
        /// All guests of the namespaces with these labels.
        namespaces: Option<LabelSelector>,
        /// Guests with these labels.
        pods: Option<NamespacedPods>,
    }

    NamespacedPods {
        /// Labels of the namespaces; empty selects all.
        namespace_selector: Option<LabelSelector>,
        /// Labels of the guests; empty selects all.
        pod_selector: LabelSelector,
    }

    PolicyIngressRule {
        /// Name of the rule, for people.
        name: Option<String> = {"maxLength": 100},
        /// Effect on connections that fit: Accept and Deny are final, Pass leaves the decision to
        /// the next tier.
        action: String = {"enum": ["Accept", "Deny", "Pass"]},
        /// Sources of the connections.
        from: Vec<PolicyIngressPeer> = {"required": true, "minItems": 1, "maxItems": 25},
        /// Protocols and ports; all if it is missing, also protocols without ports.
        protocols: Vec<PolicyProtocol> = {"minItems": 1, "maxItems": 25},
    }

    PolicyEgressRule: {"x-kubernetes-validations": [{"rule": "!(self.to.exists(peer, has(peer.networks) || has(peer.nodes) || has(peer.domainNames)) && has(self.protocols) && self.protocols.exists(protocol, has(protocol.destinationNamedPort)))", "message": "networks/nodes/domainNames peer cannot be set with namedPorts since there are no namedPorts for networks/nodes/domainNames"}]} {
        /// Name of the rule, for people.
        name: Option<String> = {"maxLength": 100},
        /// Effect on connections that fit: Accept and Deny are final, Pass leaves the decision to
        /// the next tier. The receiver's ingress rules apply in addition.
        action: String = {"enum": ["Accept", "Deny", "Pass"]},
        /// Destinations of the connections.
        to: Vec<PolicyEgressPeer> = {"required": true, "minItems": 1, "maxItems": 25},
        /// Protocols and ports; all if it is missing, also protocols without ports.
        protocols: Vec<PolicyProtocol> = {"minItems": 1, "maxItems": 25},
    }

    PolicyIngressPeer: {"minProperties": 1, "maxProperties": 1} {
        /// All guests of the namespaces with these labels.
        namespaces: Option<LabelSelector>,
        /// Guests with these labels.
        pods: Option<NamespacedPods>,
    }

    PolicyEgressPeer: {"minProperties": 1, "maxProperties": 1, "x-kubernetes-validations": [
        {"rule": "!has(self.nodes)", "message": "nodes is not supported: name the addresses of the nodes in networks"},
        {"rule": "!has(self.domainNames)", "message": "domainNames is not supported: name addresses in networks"}
    ]} {
        /// All guests of the namespaces with these labels.
        namespaces: Option<LabelSelector>,
        /// Guests with these labels.
        pods: Option<NamespacedPods>,
        /// Addresses inside and outside the cluster.
        networks: Vec<String> = {"minItems": 1, "maxItems": 25, "x-kubernetes-list-type": "set", "items": {"maxLength": 43, "x-kubernetes-validations": [{"rule": "isCIDR(self)", "message": "Invalid CIDR format provided"}]}},
        /// Nodes with these labels; not supported.
        nodes: Option<LabelSelector>,
        /// Names in the DNS; not supported.
        domain_names: Vec<String> = {"minItems": 1, "maxItems": 25, "x-kubernetes-list-type": "set", "items": {"maxLength": 255}},
    }

    PolicyProtocol: {"minProperties": 1, "maxProperties": 1} {
        /// Connections of TCP.
        tcp: Option<PolicyPorts>,
        /// Connections of UDP.
        udp: Option<PolicyPorts>,
        /// Connections of SCTP.
        sctp: Option<PolicyPorts>,
        /// Port by its name among the `ports` of the interface of the guest that serves it.
        destination_named_port: Option<String>,
    }

    PolicyPorts: {"minProperties": 1} {
        /// Port of the receiver.
        destination_port: Option<PolicyPort>,
    }

    PolicyPort: {"minProperties": 1, "maxProperties": 1} {
        /// One port.
        number: Option<i32> = {"minimum": 1, "maximum": 65535},
        /// Consecutive ports.
        range: Option<PolicyPortRange>,
    }

    PolicyPortRange: {"x-kubernetes-validations": [{"rule": "self.start < self.end", "message": "Start port must be less than End port"}]} {
        /// First port.
        start: i32 = {"minimum": 1, "maximum": 65535},
        /// Last port.
        end: i32 = {"minimum": 1, "maximum": 65535},
    }

    ClusterNetworkPolicyStatus {
        conditions: Vec<PolicyCondition> = {"required": true, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    }

    PolicyCondition {
        r#type: String = {"maxLength": 316},
        status: String = {"enum": ["True", "False", "Unknown"]},
        /// Generation of the policy that the condition was written for.
        observed_generation: Option<i64> = {"minimum": 0},
        last_transition_time: Time,
        reason: String = {"minLength": 1, "maxLength": 1024},
        message: String = {"maxLength": 32768},
    }
}
