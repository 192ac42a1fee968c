// Networks of machines as the API describes them, and the objects that forms create. Pure.
import type { AddressPool, ClusterNetwork, Network, Uplink, UplinkStatus } from "../api/types.ts";
import type { Status } from "./status.ts";

export type NetworkType = "vlan" | "trunk" | "untagged" | "bridge";

export interface NetworkFacts {
  type: NetworkType | "invalid";
  /** VLANs as people write them: `100`, `100-110, 5`. */
  vlans: string;
  /** Empty for a bridge that an administrator made by hand. */
  clusterNetwork: string;
  bridge: string;
}

interface TrunkRange {
  id?: number;
  minID?: number;
  maxID?: number;
}

interface BridgeConfig {
  bridge?: string;
  vlan?: number;
  vlanTrunk?: TrunkRange[];
}

const LABEL = "network.harvesterhci.io/";

/** Harvester's label that names the cluster network of a network. */
export const CLUSTER_NETWORK_LABEL = `${LABEL}clusternetwork`;

/** The bridge that every node makes for a cluster network. */
export const bridgeOf = (clusterNetwork: string): string => `${clusterNetwork}-br`;

function configOf(network: Network): BridgeConfig | undefined {
  try {
    const config: unknown = JSON.parse(network.spec?.config ?? "{}");
    return typeof config === "object" && config !== null ? config : undefined;
  } catch {
    return undefined;
  }
}

const rangeText = (range: TrunkRange): string => (range.id === undefined ? `${range.minID}-${range.maxID}` : String(range.id));

export function networkFacts(network: Network): NetworkFacts {
  const config = configOf(network);
  const clusterNetwork = network.metadata.labels?.[CLUSTER_NETWORK_LABEL] ?? "";
  if (!config) return { type: "invalid", vlans: "", clusterNetwork, bridge: "" };
  const bridge = config.bridge ?? "";
  if (config.vlanTrunk?.length) return { type: "trunk", vlans: config.vlanTrunk.map(rangeText).join(", "), clusterNetwork, bridge };
  if (config.vlan) return { type: "vlan", vlans: String(config.vlan), clusterNetwork, bridge };
  return { type: clusterNetwork === "" ? "bridge" : "untagged", vlans: "", clusterNetwork, bridge };
}

export interface NetworkDraft {
  name: string;
  namespace: string;
  type: NetworkType;
  clusterNetwork: string;
  vlan: string;
  trunk: string;
  /** Only for the type `bridge`. */
  bridge: string;
}

const isVlan = (text: string): boolean => /^\d+$/.test(text) && Number(text) >= 1 && Number(text) <= 4094;

/** The ranges of a trunk, `100-110, 5`; nothing if the text is none. */
export function trunkOf(text: string): TrunkRange[] | undefined {
  const ranges: TrunkRange[] = [];
  for (const part of text.split(",").map((one) => one.trim())) {
    const [from = "", to, more] = part.split("-").map((one) => one.trim());
    if (more !== undefined || !isVlan(from)) return undefined;
    if (to === undefined) ranges.push({ id: Number(from) });
    else if (isVlan(to) && Number(to) > Number(from)) ranges.push({ minID: Number(from), maxID: Number(to) });
    else return undefined;
  }
  return ranges;
}

/** What a network still lacks; nothing if it can be created. */
export function networkMissing(draft: NetworkDraft): string | undefined {
  if (draft.name === "") return "A name is missing";
  if (draft.type === "bridge") return draft.bridge === "" ? "A bridge is missing" : undefined;
  if (draft.clusterNetwork === "") return "A cluster network is missing";
  if (draft.type === "vlan" && !isVlan(draft.vlan)) return "A VLAN is a number from 1 to 4094";
  if (draft.type === "trunk" && !trunkOf(draft.trunk)) return "VLANs of a trunk are numbers and ranges: 100-110, 5";
  return undefined;
}

export function networkObject(draft: NetworkDraft): Network {
  const bridge = draft.type === "bridge" ? draft.bridge : bridgeOf(draft.clusterNetwork);
  const vlans = { vlan: { vlan: Number(draft.vlan) }, trunk: { vlanTrunk: trunkOf(draft.trunk) }, untagged: { vlan: 0 }, bridge: {} }[draft.type];
  const config = { cniVersion: "0.3.1", name: draft.name, type: "bridge", bridge, promiscMode: true, ipam: {}, ...vlans };
  return {
    apiVersion: "k8s.cni.cncf.io/v1", kind: "NetworkAttachmentDefinition",
    metadata: { name: draft.name, namespace: draft.namespace }, spec: { config: JSON.stringify(config) },
  };
}

/** The command that creates the same network. */
export function networkCommand(draft: NetworkDraft): string | undefined {
  const type = { vlan: `--vlan ${draft.vlan || "ID"}`, trunk: `--trunk ${draft.trunk.replaceAll(" ", "") || "IDS"}`, untagged: "--type untagged", bridge: undefined }[draft.type];
  return type && `sheaf network create ${draft.name || "NAME"} -n ${draft.namespace} --cluster-network ${draft.clusterNetwork || "NETWORK"} ${type}`;
}

export interface UplinkDraft {
  clusterNetwork: string;
  name: string;
  /** Cards, separated by commas or spaces. */
  nics: string;
  mode: string;
  mtu: string;
  /** Empty: all hosts. */
  host: string;
}

export const BOND_MODES = ["active-backup", "802.3ad", "balance-xor", "balance-tlb", "balance-alb", "balance-rr", "broadcast"];

export const nicsOf = (text: string): string[] => text.split(/[\s,]+/).filter((one) => one !== "");

export function uplinkMissing(draft: UplinkDraft): string | undefined {
  if (!/^[a-z0-9]([a-z0-9-]{0,10}[a-z0-9])?$/.test(draft.clusterNetwork)) return "The name of a cluster network has at most 12 lower-case letters, digits and hyphens";
  if (draft.name === "") return "A name is missing";
  if (nicsOf(draft.nics).length === 0) return "A network card is missing";
  if (draft.mtu !== "" && !(Number(draft.mtu) >= 1280 && Number(draft.mtu) <= 9216)) return "An MTU is a number from 1280 to 9216";
  return undefined;
}

export function uplinkObject(draft: UplinkDraft): Record<string, unknown> {
  const linkAttributes = draft.mtu === "" ? {} : { linkAttributes: { mtu: Number(draft.mtu) } };
  const nodeSelector = draft.host === "" ? {} : { nodeSelector: { "kubernetes.io/hostname": draft.host } };
  return {
    apiVersion: "network.harvesterhci.io/v1beta1", kind: "VlanConfig", metadata: { name: draft.name },
    spec: { clusterNetwork: draft.clusterNetwork, ...nodeSelector, uplink: { nics: nicsOf(draft.nics), bondOptions: { mode: draft.mode, miimon: 100 }, ...linkAttributes } },
  };
}

/** How the hosts of an uplink report it: the first that is not ready decides. */
export function uplinkStatus(uplink: Uplink, reports: Iterable<UplinkStatus>): Status {
  const own = [...reports].filter((one) => one.status?.vlanConfig === uplink.metadata.name);
  const ready = (one: UplinkStatus) => one.status?.conditions?.find((condition) => condition.type === "ready");
  const failed = own.find((one) => ready(one)?.status !== "True");
  if (own.length === 0) return { tone: "busy", word: "No host yet" };
  if (failed) return { tone: "bad", word: "Not ready", reason: `${failed.status?.node}: ${ready(failed)?.message ?? ""}` };
  return { tone: "ok", word: "Ready" };
}

/** Cluster networks that machines can be on: those with an uplink, and `mgmt` if a bridge was made for it. */
export function clusterNetworkNames(networks: Iterable<ClusterNetwork>, uplinks: Iterable<Uplink>): string[] {
  const used = new Set([...uplinks].map((one) => one.spec?.clusterNetwork));
  return [...networks].map((one) => one.metadata.name).filter((name) => used.has(name) || name === "mgmt").sort();
}

export interface PoolDraft {
  name: string;
  /** NAMESPACE/NAME */
  network: string;
  cidr: string;
  router: string;
  start: string;
  end: string;
  dns: string;
}

const isAddress = (text: string): boolean => /^(\d{1,3}\.){3}\d{1,3}$/.test(text) && text.split(".").every((part) => Number(part) <= 255);
const optional = (text: string): boolean => text === "" || isAddress(text);

export function poolMissing(draft: PoolDraft): string | undefined {
  const [address = "", bits = ""] = draft.cidr.split("/");
  if (draft.name === "") return "A name is missing";
  if (draft.network === "") return "A network is missing";
  if (!isAddress(address) || !/^\d+$/.test(bits) || Number(bits) > 30) return "A subnet looks like 192.168.100.0/24";
  if (![draft.router, draft.start, draft.end].every(optional)) return "Addresses look like 192.168.100.1";
  if (!nicsOf(draft.dns).every(isAddress)) return "Name servers are addresses, separated by commas";
  return undefined;
}

export function poolObject(draft: PoolDraft): Record<string, unknown> {
  const [namespace] = draft.network.split("/");
  const given = (entries: Record<string, string>) => Object.fromEntries(Object.entries(entries).filter(([, value]) => value !== ""));
  const dns = nicsOf(draft.dns);
  return {
    apiVersion: "network.harvesterhci.io/v1alpha1", kind: "IPPool", metadata: { name: draft.name, namespace },
    spec: { networkName: draft.network, ipv4Config: { cidr: draft.cidr, ...given({ router: draft.router }), ...(dns.length ? { dns } : {}), pool: given({ start: draft.start, end: draft.end }) } },
  };
}

export interface Lease {
  address: string;
  /** A MAC address, or RESERVED or EXCLUDED. */
  holder: string;
}

const numberOf = (address: string): number => address.split(".").reduce((sum, part) => sum * 256 + Number(part), 0);

/** The addresses of a pool that are not free, in their order. */
export function leasesOf(pool: AddressPool): Lease[] {
  const leases = Object.entries(pool.status?.ipv4?.allocated ?? {}).map(([address, holder]) => ({ address, holder }));
  return leases.sort((a, b) => numberOf(a.address) - numberOf(b.address));
}

export function poolStatus(pool: AddressPool): Status {
  if (pool.spec?.paused) return { tone: "off", word: "Paused" };
  const failed = pool.status?.conditions?.find((one) => one.status === "False");
  if (failed) return { tone: "bad", word: "Not ready", reason: failed.message };
  if (!pool.status?.ipv4) return { tone: "busy", word: "Preparing" };
  return pool.status.ipv4.available === 0 ? { tone: "warn", word: "Full" } : { tone: "ok", word: "Ready" };
}
