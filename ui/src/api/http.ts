// Requests to the server with the session of the user. Every other module goes through here.
import { signal } from "@preact/signals";

export interface Cause {
  field: string;
  message: string;
}

/** A request that failed, in the server's words. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly reason: string,
    message: string,
    readonly causes: Cause[] = [],
    readonly asked = "",
  ) {
    super(message);
  }
}

export interface RequestOptions {
  body?: unknown;
  contentType?: string;
  accept?: string;
  query?: Record<string, string | undefined>;
  signal?: AbortSignal;
}

export const FIELD_MANAGER = "sheaf-ui";

/** Set while the session is over; resolved by the login over the page. */
export const expired = signal<(() => void) | null>(null);
/** The last warnings of the server, for the page that caused them. */
export const warnings = signal<string[]>([]);
let waiting: Promise<void> | null = null;

/** Waits until the user has logged in again. */
function loggedInAgain(): Promise<void> {
  waiting ??= new Promise<void>((resolve) => {
    expired.value = () => {
      expired.value = null;
      waiting = null;
      resolve();
    };
  });
  return waiting;
}

export function csrf(): string {
  return /(?:^|;\s*)CSRF=([^;]*)/.exec(document.cookie)?.[1] ?? "";
}

export function url(path: string, query: RequestOptions["query"] = {}): string {
  const given = Object.entries(query).filter((pair): pair is [string, string] => pair[1] !== undefined);
  if (given.length === 0) return path;
  return `${path}${path.includes("?") ? "&" : "?"}${new URLSearchParams(given)}`;
}

/** Sends a request, and once more after a login if the session was over. */
export async function send(method: string, path: string, options: RequestOptions = {}): Promise<Response> {
  for (;;) {
    const response = await once(method, path, options);
    if (response.status !== 401 || path.startsWith("/v3-public")) return response;
    await loggedInAgain();
  }
}

/** A moment later, unless nobody waits any more. */
function later(stop: AbortSignal | undefined, error: unknown): Promise<void> {
  if (stop?.aborted) return Promise.reject(error);
  return new Promise((resolve) => setTimeout(resolve, 300));
}

async function once(method: string, path: string, options: RequestOptions): Promise<Response> {
  const headers: Record<string, string> = { Accept: options.accept ?? "application/json", "X-Sheaf-Client": "ui" };
  const writes = method !== "GET" && method !== "HEAD";
  if (writes) headers["X-API-Csrf"] = csrf();
  let body: BodyInit | undefined;
  if (options.body instanceof Blob || typeof options.body === "string") {
    body = options.body;
    headers["Content-Type"] = options.contentType ?? "application/octet-stream";
  } else if (options.body !== undefined) {
    body = JSON.stringify(options.body);
    headers["Content-Type"] = options.contentType ?? "application/json";
  }
  const asked = `${method} ${path}`;
  const ask = () => fetch(url(path, options.query), { method, headers, body, signal: options.signal, redirect: "error" });
  // Browsers drop connections when the network changes. What changes nothing is asked again.
  const again = !writes || path.startsWith("/v3-public");
  try {
    return await (again ? ask().catch((error: unknown) => later(options.signal, error).then(ask)) : ask());
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new ApiError(0, "Unreachable", "The server does not answer.", [], asked);
  }
}

/** Sends a request and reads the object in the answer. */
export async function request<T>(method: string, path: string, options: RequestOptions = {}): Promise<T> {
  const response = await send(method, path, options);
  const text = await response.text();
  if (!response.ok) throw failure(response.status, text, `${method} ${path}`);
  noteWarnings(response);
  if (text === "") return undefined as T;
  try {
    return JSON.parse(text) as T;
  } catch {
    return text as T;
  }
}

function noteWarnings(response: Response): void {
  const header = response.headers.get("Warning");
  if (header) warnings.value = [...header.matchAll(/299 \S+ "((?:[^"\\]|\\.)*)"/g)].map((one) => one[1].replace(/\\(.)/g, "$1"));
}

/** An error from the text of an answer: a Status, Steve's error, or plain text. */
export function failure(status: number, text: string, asked: string): ApiError {
  try {
    const body = JSON.parse(text) as {
      message?: string;
      reason?: string;
      code?: string | number;
      details?: { causes?: { field?: string; message?: string }[] };
    };
    const causes = (body.details?.causes ?? []).map((cause) => ({
      field: cause.field ?? "",
      message: cause.message ?? "",
    }));
    return new ApiError(status, body.reason ?? String(body.code ?? ""), body.message ?? text, causes, asked);
  } catch {
    return new ApiError(status, "", text.trim() || `HTTP ${status}`, [], asked);
  }
}

export const get = <T>(path: string, options?: RequestOptions) => request<T>("GET", path, options);
export const post = <T>(path: string, body: unknown, options?: RequestOptions) =>
  request<T>("POST", path, { ...options, body });
export const put = <T>(path: string, body: unknown, options?: RequestOptions) =>
  request<T>("PUT", path, { ...options, body });
export const remove = <T>(path: string, body?: unknown) => request<T>("DELETE", path, { body });
export const mergePatch = <T>(path: string, body: unknown, query?: RequestOptions["query"]) =>
  request<T>("PATCH", path, {
    body,
    contentType: "application/merge-patch+json",
    query: { fieldManager: FIELD_MANAGER, ...query },
  });
