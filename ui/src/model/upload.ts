// Uploads of images in parts. A part that is lost is sent again from where the server says;
// an upload that was paused goes on when the same file is chosen.
import { ApiError, csrf, get, send } from "../api/http.ts";
import { t } from "../messages.ts";
import { begin, update } from "./activity.ts";
import { formatBytes } from "./quantity.ts";

const PART = 16 * 2 ** 20;
const RETRIES = 8;

const pathOf = (namespace: string, name: string) =>
  `/v1/harvester/harvesterhci.io.virtualmachineimages/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}?action=upload`;

/** Sends one part with a progress that fetch cannot tell. */
function sendPart(url: string, part: Blob, stop: AbortSignal, onProgress: (bytes: number) => void): Promise<void> {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("POST", url);
    request.setRequestHeader("X-API-Csrf", csrf());
    request.setRequestHeader("Content-Type", "application/octet-stream");
    request.upload.onprogress = (event) => onProgress(event.loaded);
    request.onload = () => {
      if (request.status < 300) resolve();
      else reject(new ApiError(request.status, "", request.responseText || `HTTP ${request.status}`));
    };
    request.onerror = () => reject(new ApiError(0, "Unreachable", t("The connection was lost.")));
    request.onabort = () => reject(new DOMException("aborted", "AbortError"));
    stop.addEventListener("abort", () => request.abort(), { once: true });
    request.send(part);
  });
}

/** Where the server wants the upload to go on. */
async function offsetOf(namespace: string, name: string): Promise<number> {
  const answer = await get<{ offset: number }>(pathOf(namespace, name));
  return answer.offset;
}

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

/** Sends a file to an image; survives lost connections and changes of the screen. */
export async function uploadImage(namespace: string, name: string, file: File): Promise<void> {
  const stop = new AbortController();
  const id = begin(t("Upload {file}", { file: file.name }), { progress: 0, cancel: () => stop.abort() });
  const began = Date.now();
  let offset = 0;
  let first = 0;
  let failures = 0;
  const tell = (bytes: number) => {
    const rate = (bytes - first) / Math.max(1, (Date.now() - began) / 1000);
    const left = rate > 0 ? Math.ceil((file.size - bytes) / rate) : 0;
    const note = t("{done} of {all} · {rate}/s · {left} s left", { done: formatBytes(bytes), all: formatBytes(file.size), rate: formatBytes(rate), left });
    update(id, { progress: bytes / file.size, note });
  };
  try {
    offset = first = await offsetOf(namespace, name);
    while (offset < file.size) {
      const part = file.slice(offset, offset + PART);
      const url = `${pathOf(namespace, name)}&size=${file.size}&offset=${offset}`;
      try {
        await sendPart(url, part, stop.signal, (bytes) => tell(offset + bytes));
        offset += part.size;
        failures = 0;
      } catch (error) {
        if (stop.signal.aborted) throw error;
        const lost = error instanceof ApiError && (error.status === 0 || error.status === 409 || error.status >= 500);
        failures += 1;
        if (!lost || failures > RETRIES) throw error;
        await pause(Math.min(15_000, 500 * 2 ** failures));
        offset = await offsetOf(namespace, name);
      }
    }
    update(id, { state: "done", progress: 1, note: undefined });
  } catch (error) {
    const paused = stop.signal.aborted;
    const message = error instanceof Error ? error.message : String(error);
    update(id, { state: "failed", note: paused ? t("Paused. Choose “Continue upload” on the image to go on.") : message });
  }
}

/** Whether the server can be asked for the offset of an image at all. */
export async function canContinue(namespace: string, name: string): Promise<boolean> {
  return (await send("GET", pathOf(namespace, name))).ok;
}
