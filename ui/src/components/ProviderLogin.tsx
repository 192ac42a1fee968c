// Buttons to log in at an OpenID Connect provider, and what became of such a login.
import { useEffect, useState } from "preact/hooks";
import { get } from "../api/http.ts";
import { t } from "../messages.ts";
import { ErrorNote } from "./Note.tsx";

interface Provider {
  id: string;
  name?: string;
  /** The page of the login; the server itself asks for a password and has none. */
  redirectUrl?: string;
}

const FAILED: Record<string, string> = {
  attempt: "The login was begun in another browser, or took more than ten minutes. Log in again.",
  refused: "The provider refused the login.",
  provider: "The provider cannot be reached, or its answer is invalid. The server's log says more.",
  token: "The server does not accept the provider's token. The server's log says why.",
  disabled: "This user is disabled.",
  busy: "There were too many attempts. Wait a minute, then log in again.",
  server: "The server could not record the login. Its log says why.",
};

/** Why the last login at a provider failed: the provider led back here with a code. */
export function ProviderError() {
  const code = new URLSearchParams(location.search).get("login_error");
  const text = code === null ? undefined : FAILED[code];
  return <ErrorNote error={text === undefined ? null : new Error(t(text))} />;
}

export function ProviderLogin({ newTab = false }: { newTab?: boolean }) {
  const [providers, setProviders] = useState<Provider[]>([]);
  useEffect(() => {
    get<{ data: Provider[] }>("/v3-public/authProviders").then(
      (found) => setProviders(found.data),
      () => undefined,
    );
  }, []);
  const page = new URLSearchParams(location.search).has("login_error") ? location.pathname : location.pathname + location.search;
  return (
    <>
      {providers.map(({ id, name, redirectUrl }) => {
        if (redirectUrl === undefined) return null;
        const query = new URLSearchParams({ return: newTab ? "/dashboard/" : page });
        return (
          <a key={id} class="button" href={`${new URL(redirectUrl).pathname}?${query}`} target={newTab ? "_blank" : undefined} rel="noopener">
            {newTab ? t("Log in with {name} in a new tab", { name: name ?? id }) : t("Log in with {name}", { name: name ?? id })}
          </a>
        );
      })}
    </>
  );
}
