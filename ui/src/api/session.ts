// Who uses the page, and what they may do.
import { signal } from "@preact/signals";
import { ApiError, csrf, get, post, request } from "./http.ts";

export interface User {
  name: string;
  groups: string[];
}

interface Rule {
  verbs: string[];
  apiGroups?: string[];
  resources?: string[];
  resourceNames?: string[];
}

/** Null: not known yet. False: nobody is logged in. */
export const user = signal<User | false | null>(null);
const rules = signal<Rule[]>([]);
/** The projects of a user who may not list machines everywhere; null for one who may. */
export const projects = signal<string[] | null>(null);
export const serverVersion = signal("");
/** Whether somebody else has chosen the user's password: asked once, with the session. */
export const mustChangePassword = signal(false);

/** Where new things go unless another project is chosen. */
export const firstProject = (): string => projects.value?.[0] ?? "default";

const LOGIN = "/v3-public/localProviders/local?action=login";

export async function logIn(username: string, password: string): Promise<void> {
  await request("POST", LOGIN, {
    body: { username, password, description: "dashboard", responseType: "cookie" },
  });
  await whoAmI();
}

/** Whether the browser has a session, without a word about one that has ended. */
export async function hasSession(): Promise<boolean> {
  const reply = await fetch("/v3/users?me=true").catch(() => null);
  return reply?.ok ?? false;
}

export async function logOut(): Promise<void> {
  await request("POST", "/v3/tokens?action=logout").catch(() => undefined);
  // Everything in memory belongs to the user who left.
  location.assign("/dashboard/");
}

const PAUSE = 1000;

/** Asks until the server answers: without it there is no page. */
async function untilAnswered(ask: () => Promise<Response>): Promise<Response> {
  for (;;) {
    try {
      return await ask();
    } catch {
      await new Promise((resolve) => setTimeout(resolve, PAUSE));
    }
  }
}

/** Asks the server; without a session it is nobody. */
export async function whoAmI(): Promise<void> {
  if (csrf() === "") {
    user.value = false;
    return;
  }
  interface Review {
    status?: { userInfo?: { username?: string; groups?: string[] } };
  }
  const body = { apiVersion: "authentication.k8s.io/v1", kind: "SelfSubjectReview" };
  const headers = { "Content-Type": "application/json", "X-API-Csrf": csrf() };
  const path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
  const response = await untilAnswered(() => fetch(path, { method: "POST", headers, body: JSON.stringify(body) }));
  const review = response.ok ? ((await response.json()) as Review) : {};
  const info = review.status?.userInfo;
  if (!info?.username || info.username === "system:anonymous") {
    user.value = false;
    return;
  }
  await Promise.all([loadRights(), loadVersion(), loadOwnUser()]);
  user.value = { name: info.username, groups: info.groups ?? [] };
}

/** Whether machines of all projects may be listed; if not, which projects are the user's. */
async function loadRights(): Promise<void> {
  interface Review {
    status: { allowed: boolean };
  }
  const resourceAttributes = { verb: "list", group: "kubevirt.io", resource: "virtualmachines" };
  const body = { apiVersion: "authorization.k8s.io/v1", kind: "SelfSubjectAccessReview", spec: { resourceAttributes } };
  const everywhere = await post<Review>("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body);
  projects.value = everywhere.status.allowed ? null : (await get<{ data: string[] }>("/v1/namespaces?link=accessible")).data;
  const found = await Promise.all((projects.value ?? ["default"]).map(rulesOf));
  rules.value = found.flat();
}

async function rulesOf(namespace: string): Promise<Rule[]> {
  interface Review {
    status: { resourceRules: Rule[] };
  }
  const body = { apiVersion: "authorization.k8s.io/v1", kind: "SelfSubjectRulesReview", spec: { namespace } };
  const review = await post<Review>("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", body);
  return review.status.resourceRules;
}

async function loadOwnUser(): Promise<void> {
  const own = await get<{ data: { mustChangePassword?: boolean }[] }>("/v3/users?me=true").catch(() => null);
  mustChangePassword.value = own?.data[0]?.mustChangePassword ?? false;
}

async function loadVersion(): Promise<void> {
  const version = await get<{ gitVersion?: string }>("/version").catch((error: unknown) => {
    if (error instanceof ApiError) return null;
    throw error;
  });
  serverVersion.value = version?.gitVersion ?? "";
}

/**
 * Whether the user's roles allow something, as far as the rules of the cluster and of their projects
 * tell. The server decides; this only keeps buttons away that cannot work.
 */
export function may(verb: string, group: string, resource: string): boolean {
  const has = (list: string[] | undefined, wanted: string) => list?.some((one) => one === "*" || one === wanted) ?? false;
  return rules.value.some(
    (rule) => has(rule.verbs, verb) && has(rule.apiGroups, group) && has(rule.resources, resource) && !rule.resourceNames?.length,
  );
}
