// The state of a replicated volume.
import type { Claim, LonghornReplica, LonghornVolume } from "../api/types.ts";
import type { Status } from "./status.ts";

export function volumeHealth(volume: LonghornVolume): Status {
  const { state, robustness } = volume.status ?? {};
  if (robustness === "faulted") return { tone: "bad", word: "Faulted" };
  if (robustness === "degraded") return { tone: "warn", word: "Degraded" };
  if (state === "detached") return { tone: "off", word: "Not in use" };
  if (state === "attached") return { tone: "ok", word: "In use" };
  return { tone: "busy", word: state ? state[0].toUpperCase() + state.slice(1) : "Pending" };
}

export function claimStatus(claim: Claim, volume: LonghornVolume | undefined): Status {
  if (claim.metadata.deletionTimestamp) return { tone: "busy", word: "Deleting" };
  if (volume) return volumeHealth(volume);
  if (claim.status?.phase === "Bound") return { tone: "ok", word: "Ready" };
  if (claim.status?.phase === "Lost") return { tone: "bad", word: "Lost" };
  return { tone: "busy", word: "Pending" };
}

/** One copy: whether it holds all data, and whether it is in use. */
export function replicaStatus(replica: LonghornReplica): Status {
  const { failedAt, healthyAt } = replica.spec ?? {};
  if (replica.metadata.deletionTimestamp) return { tone: "busy", word: "Deleting" };
  if (failedAt) return { tone: "bad", word: "Failed" };
  if (!healthyAt) return { tone: "busy", word: "Being filled" };
  return replica.status?.currentState === "running" ? { tone: "ok", word: "Up to date" } : { tone: "off", word: "Not in use" };
}
