// The loss of a host, as the server answers it: rows for people. Pure.
import { plural, t } from "../messages.ts";
import type { Status } from "./status.ts";

export interface MachineLoss {
  namespace: string;
  name: string;
  fate: "restarted" | "waiting" | "down";
  /** The host that it would start on. */
  node?: string;
  message?: string;
}

export interface VolumeLoss {
  name: string;
  /** `namespace/name` */
  claim: string;
  copiesLeft: number;
  copiesWanted: number;
}

export interface HostLoss {
  node: string;
  machines: MachineLoss[];
  volumes: VolumeLoss[];
}

/** What becomes of a machine. */
export function machineFate(machine: MachineLoss): Status {
  switch (machine.fate) {
    case "restarted":
      return { tone: "ok", word: t("starts on {node}", { node: machine.node ?? "" }) };
    case "waiting":
      return { tone: "warn", word: t("waits for room"), reason: machine.message };
    default:
      return { tone: "bad", word: t("stays down"), reason: machine.message };
  }
}

/** What becomes of a volume. */
export function volumeFate(volume: VolumeLoss): Status {
  if (volume.copiesLeft === 0) return { tone: "bad", word: t("unavailable"), reason: t("the only up-to-date copy is on this host") };
  return { tone: "warn", word: t("degraded"), reason: t("{left} of {wanted} copies are left", { left: volume.copiesLeft, wanted: volume.copiesWanted }) };
}

/** One sentence about all of it. */
export function lossSummary(loss: HostLoss): string {
  const down = loss.machines.filter((machine) => machine.fate !== "restarted").length;
  const gone = loss.volumes.filter((volume) => volume.copiesLeft === 0).length;
  const moved = loss.machines.length - down;
  return [
    t("{machines} would start elsewhere", { machines: plural(moved, "machine") }),
    t("{machines} would stay down", { machines: plural(down, "machine") }),
    t("{volumes} would be unavailable", { volumes: plural(gone, "volume") }),
  ].join(" · ");
}
