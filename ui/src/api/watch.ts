// Live collections: a list, then a watch from its revision. Pages name a kind and get a map that
// stays current; connections are shared and closed a while after the last page left.
//
// The interface is that of one stream with several subscriptions, so that a server that joins
// and multiplexes can take its place without a change to pages.
import { computed, signal, type ReadonlySignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { ApiError, failure, send } from "./http.ts";
import { keyOf, type KubeObject } from "./objects.ts";
import { pathOf, type Kind } from "./kinds.ts";
import { projects } from "./session.ts";

export type Freshness = "loading" | "live" | "stale" | "failed";

export interface Collection<T extends KubeObject> {
  /** The objects by namespace and name. Read `version` to be called again when they change. */
  items: Map<string, T>;
  version: ReadonlySignal<number>;
  freshness: ReadonlySignal<Freshness>;
  error: ReadonlySignal<ApiError | null>;
}

interface WatchEvent<T> {
  type: "ADDED" | "MODIFIED" | "DELETED" | "BOOKMARK" | "ERROR";
  object: T & { code?: number; message?: string };
}

interface ListAnswer<T> {
  metadata: { resourceVersion: string; continue?: string };
  items: T[];
}

const LINGER = 20_000;
const FIRST_PAUSE = 500;
const LONGEST_PAUSE = 15_000;
/** Objects in one answer of a list: the first are shown while the rest is read, and no answer blocks the page for long. */
const CHUNK = 500;
/** Between two renders while objects change all the time. */
const BETWEEN_RENDERS = 200;
/** The server answers bookmarks; a stream without anything for this long is dead. */
const SILENCE = 90_000;

/** Since when the server has not answered; null while it does. */
export const offlineSince = signal<Date | null>(null);

/** An object without the record of who wrote which field: often half of it, and no page shows it. */
function lean<T extends KubeObject>(object: T): T {
  delete (object.metadata as { managedFields?: unknown }).managedFields;
  return object;
}

class Feed<T extends KubeObject> implements Collection<T> {
  items = new Map<string, T>();
  version = signal(0);
  freshness = signal<Freshness>("loading");
  error = signal<ApiError | null>(null);
  private users = 0;
  private stop: AbortController | null = null;
  private lingering: ReturnType<typeof setTimeout> | undefined;
  private pending: ReturnType<typeof setTimeout> | undefined;
  private rendered = 0;

  constructor(
    private readonly path: string,
    private readonly query: Record<string, string | undefined>,
  ) {}

  acquire(): void {
    this.users += 1;
    clearTimeout(this.lingering);
    if (this.stop === null) {
      this.stop = new AbortController();
      void this.run(this.stop.signal);
    }
  }

  release(): void {
    this.users -= 1;
    if (this.users > 0) return;
    this.lingering = setTimeout(() => {
      this.stop?.abort();
      this.stop = null;
      this.freshness.value = this.items.size > 0 ? "stale" : "loading";
    }, LINGER);
  }

  private async run(stop: AbortSignal): Promise<void> {
    let pause = FIRST_PAUSE;
    let revision: string | null = null;
    while (!stop.aborted) {
      try {
        revision ??= await this.list(stop);
        this.freshness.value = "live";
        this.error.value = null;
        offlineSince.value = null;
        pause = FIRST_PAUSE;
        revision = await this.watch(revision, stop);
      } catch (error) {
        if (stop.aborted) return;
        const known = error instanceof ApiError ? error : new ApiError(0, "Unreachable", String(error));
        if (known.status === 410) revision = null;
        else await this.failed(known, pause, stop);
        if (known.status !== 410) pause = Math.min(pause * 2, LONGEST_PAUSE);
        if (known.status === 0) revision = null;
      }
    }
  }

  private async failed(error: ApiError, pause: number, stop: AbortSignal): Promise<void> {
    this.error.value = error;
    this.freshness.value = this.items.size > 0 && error.status === 0 ? "stale" : "failed";
    if (error.status === 0) offlineSince.value ??= new Date();
    const wait = error.status === 403 || error.status === 404 ? 60_000 : pause * (0.75 + Math.random() / 2);
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, wait);
      stop.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
    });
  }

  private async list(stop: AbortSignal): Promise<string> {
    // Objects that are gone leave, those that did not change stay the same object for their rows.
    const next = new Map<string, T>();
    for (let after: string | undefined; ; ) {
      const response = await send("GET", this.path, { query: { ...this.query, limit: String(CHUNK), continue: after }, signal: stop });
      if (!response.ok) throw failure(response.status, await response.text(), `GET ${this.path}`);
      const answer = (await response.json()) as ListAnswer<T>;
      for (const item of answer.items) {
        const known = this.items.get(keyOf(item));
        const same = known?.metadata.resourceVersion === item.metadata.resourceVersion;
        next.set(keyOf(item), same && known ? known : lean(item));
      }
      after = answer.metadata.continue || undefined;
      // What was known before is shown until all of the new is there.
      if (after === undefined || this.freshness.value === "loading") {
        this.items = next;
        this.version.value += 1;
      }
      if (after === undefined) return answer.metadata.resourceVersion;
    }
  }

  /** Follows changes; returns the revision to go on from when the server ends the stream. */
  private async watch(from: string, stop: AbortSignal): Promise<string> {
    const query = { ...this.query, watch: "1", allowWatchBookmarks: "true", resourceVersion: from };
    const response = await send("GET", this.path, { query, signal: stop });
    if (!response.ok || !response.body) throw failure(response.status, await response.text(), `watch ${this.path}`);
    const reader = response.body.getReader();
    const decoder = new TextDecoder();
    let buffer = "";
    let revision = from;
    for (;;) {
      const { done, value } = await this.read(reader);
      if (done) return revision;
      buffer += decoder.decode(value, { stream: true });
      const lines = buffer.split("\n");
      buffer = lines.pop() ?? "";
      for (const line of lines) {
        if (line === "") continue;
        const event = JSON.parse(line) as WatchEvent<T>;
        if (event.type === "ERROR") {
          throw new ApiError(event.object.code ?? 0, "", event.object.message ?? "");
        }
        revision = event.object.metadata.resourceVersion ?? revision;
        this.apply(event);
      }
    }
  }

  private async read(reader: ReadableStreamDefaultReader<Uint8Array>) {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const silent = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(new ApiError(0, "Silent", "The server has gone silent.")), SILENCE);
    });
    try {
      return await Promise.race([reader.read(), silent]);
    } catch (error) {
      void reader.cancel().catch(() => undefined);
      throw error instanceof ApiError ? error : new ApiError(0, "Unreachable", "The connection was lost.");
    } finally {
      clearTimeout(timer);
    }
  }

  private apply(event: WatchEvent<T>): void {
    if (event.type === "BOOKMARK") return;
    if (event.type === "DELETED") this.items.delete(keyOf(event.object));
    else this.items.set(keyOf(event.object), lean(event.object));
    // A change is shown in the next frame; many of them a few times a second.
    this.pending ??= setTimeout(() => {
      requestAnimationFrame((now) => {
        this.pending = undefined;
        this.rendered = now;
        this.version.value += 1;
      });
    }, Math.max(0, this.rendered + BETWEEN_RENDERS - performance.now()));
  }
}

const feeds = new Map<string, Feed<KubeObject>>();

export interface Selection {
  namespace?: string;
  fieldSelector?: string;
  labelSelector?: string;
}

/** The feeds of several projects as one, for users who may not list all of them. */
class MergedFeed<T extends KubeObject> implements Collection<T> {
  private merged = new Map<string, T>();
  private mergedAt = -1;
  readonly version = computed(() => this.parts.reduce((sum, part) => sum + part.version.value, 0));
  readonly freshness = computed<Freshness>(() => {
    const states = this.parts.map((part) => part.freshness.value);
    if (states.length === 0 || states.includes("live")) return "live";
    return states.includes("stale") ? "stale" : states.includes("loading") ? "loading" : "failed";
  });
  readonly error = computed(() => this.parts.find((part) => part.error.value)?.error.value ?? null);

  constructor(private readonly parts: Feed<T>[]) {}

  get items(): Map<string, T> {
    if (this.mergedAt !== this.version.value) {
      this.merged = new Map(this.parts.flatMap((part) => [...part.items]));
      this.mergedAt = this.version.value;
    }
    return this.merged;
  }

  acquire(): void {
    for (const part of this.parts) part.acquire();
  }

  release(): void {
    for (const part of this.parts) part.release();
  }
}

const merges = new Map<string, MergedFeed<KubeObject>>();

/** The feed of a kind, whether or not somebody follows it. */
export function collection<T extends KubeObject>(kind: Kind, of: Selection = {}): Feed<T> | MergedFeed<T> {
  if (projects.value === null || !kind.namespaced || of.namespace) return feedOf<T>(kind, of);
  const id = `${pathOf(kind)}?${of.fieldSelector ?? ""}&${of.labelSelector ?? ""}`;
  let merged = merges.get(id);
  if (!merged) {
    merged = new MergedFeed(projects.value.map((namespace) => feedOf(kind, { ...of, namespace })));
    merges.set(id, merged);
  }
  return merged as unknown as MergedFeed<T>;
}

function feedOf<T extends KubeObject>(kind: Kind, of: Selection): Feed<T> {
  const path = pathOf(kind, of.namespace);
  const id = `${path}?${of.fieldSelector ?? ""}&${of.labelSelector ?? ""}`;
  let feed = feeds.get(id);
  if (!feed) {
    feed = new Feed(path, { fieldSelector: of.fieldSelector, labelSelector: of.labelSelector });
    feeds.set(id, feed);
  }
  return feed as unknown as Feed<T>;
}

/** Follows a kind while the component is shown. Renders again when something changes. */
export function useCollection<T extends KubeObject>(kind: Kind, of: Selection = {}): Collection<T> {
  const feed = collection<T>(kind, of);
  useEffect(() => {
    feed.acquire();
    return () => feed.release();
  }, [feed]);
  // Reading subscribes the component.
  void feed.version.value;
  void feed.freshness.value;
  return feed;
}
