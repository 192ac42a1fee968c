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
export const serverVersion = signal("");

const LOGIN = "/v3-public/localProviders/local?action=login";

export async function logIn(username: string, password: string): Promise<void> {
  await request("POST", LOGIN, {
    body: { username, password, description: "dashboard", responseType: "cookie" },
  });
  await whoAmI();
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
  user.value = { name: info.username, groups: info.groups ?? [] };
  await Promise.all([loadRules(), loadVersion()]);
}

async function loadRules(): Promise<void> {
  interface Review {
    status: { resourceRules: Rule[] };
  }
  const body = { apiVersion: "authorization.k8s.io/v1", kind: "SelfSubjectRulesReview", spec: { namespace: "default" } };
  const review = await post<Review>("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", body);
  rules.value = review.status.resourceRules;
}

async function loadVersion(): Promise<void> {
  const version = await get<{ gitVersion?: string }>("/version").catch((error: unknown) => {
    if (error instanceof ApiError) return null;
    throw error;
  });
  serverVersion.value = version?.gitVersion ?? "";
}

/**
 * Whether the user's roles allow something, as far as the rules of the default project and of the
 * cluster tell. The server decides; this only keeps buttons away that cannot work.
 */
export function may(verb: string, group: string, resource: string): boolean {
  const has = (list: string[] | undefined, wanted: string) => list?.some((one) => one === "*" || one === wanted) ?? false;
  return rules.value.some(
    (rule) => has(rule.verbs, verb) && has(rule.apiGroups, group) && has(rule.resources, resource) && !rule.resourceNames?.length,
  );
}
