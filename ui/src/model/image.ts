// The state of an image, from its conditions.
import { condition, type Condition } from "../api/objects.ts";
import type { Image } from "../api/types.ts";
import type { Status } from "./status.ts";

export function imageStatus(image: Image): Status {
  const conditions = (image.status?.conditions ?? []) as Condition[];
  const imported = condition(conditions, "Imported");
  const limit = condition(conditions, "RetryLimitExceeded");
  if (image.metadata.deletionTimestamp) return { tone: "busy", word: "Deleting" };
  if (imported?.status === "True") return { tone: "ok", word: "Ready" };
  if (imported?.status === "False" || limit?.status === "True") {
    return { tone: "bad", word: "Failed", reason: limit?.message || imported?.message };
  }
  const initialized = condition(conditions, "Initialized");
  if (initialized?.reason === "NoDisk") return { tone: "warn", word: "No disk takes it", reason: initialized.message };
  const progress = image.status?.progress ?? 0;
  const word = image.spec?.sourceType === "upload" && progress === 0 ? "Waiting for the upload" : "Importing";
  return { tone: "busy", word, reason: progress > 0 ? `${progress} %` : limit?.message || undefined };
}
