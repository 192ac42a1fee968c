// Load balancers as the API describes them, and the object that the form creates. Pure.
import type { Balancer } from "../api/types.ts";
import type { Status } from "./status.ts";

export interface BalancerDraft {
  name: string;
  namespace: string;
  /** Empty: the pool whose selector matches. */
  pool: string;
  protocol: "TCP" | "UDP";
  port: string;
  backendPort: string;
  /** KEY=VALUE */
  label: string;
  check: boolean;
}

const isPort = (text: string): boolean => /^\d+$/.test(text) && Number(text) >= 1 && Number(text) <= 65535;

export function balancerMissing(draft: BalancerDraft): string | undefined {
  if (draft.name === "") return "A name is missing";
  if (!/^[^=\s]+=[^=\s]*$/.test(draft.label)) return "A label looks like app=web";
  if (!isPort(draft.port) || !isPort(draft.backendPort)) return "A port is a number from 1 to 65535";
  return undefined;
}

export function balancerObject(draft: BalancerDraft): Record<string, unknown> {
  const [key = "", value = ""] = draft.label.split("=");
  const backendPort = Number(draft.backendPort);
  const check = draft.check && draft.protocol === "TCP";
  return {
    apiVersion: "loadbalancer.harvesterhci.io/v1beta1", kind: "LoadBalancer", metadata: { name: draft.name, namespace: draft.namespace },
    spec: {
      workloadType: "vm", ipam: "pool", ...(draft.pool === "" ? {} : { ipPool: draft.pool }),
      listeners: [{ name: "main", port: Number(draft.port), protocol: draft.protocol, backendPort }],
      backendServerSelector: { [key]: [value] },
      ...(check ? { healthCheck: { port: backendPort, successThreshold: 1, failureThreshold: 3, periodSeconds: 5, timeoutSeconds: 3 } } : {}),
    },
  };
}

/** `80 → 8080/TCP`, for every listener. */
export function portsText(balancer: Balancer): string {
  return (balancer.spec?.listeners ?? []).map((one) => `${one.port} → ${one.backendPort}/${one.protocol ?? "TCP"}`).join(", ");
}

export function balancerStatus(balancer: Balancer): Status {
  const ready = balancer.status?.conditions?.find((one) => one.type === "Ready");
  if (ready?.status === "True") return { tone: "ok", word: "Ready" };
  if (ready?.status === "False") return { tone: "bad", word: "Not ready", reason: ready.message };
  return { tone: "busy", word: "Preparing" };
}
