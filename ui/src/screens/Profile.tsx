import { useEffect, useState } from "preact/hooks";
import { get, request } from "../api/http.ts";
import { user } from "../api/session.ts";
import { Age } from "../components/Age.tsx";
import { Button } from "../components/Button.tsx";
import { confirm } from "../components/Confirm.tsx";
import { ErrorNote } from "../components/Note.tsx";
import { Page } from "../components/Page.tsx";
import { t } from "../messages.ts";
import { perform } from "../model/activity.ts";
import { exactTime } from "../model/quantity.ts";

interface Token {
  id: string;
  description?: string;
  created?: string;
  expiresAt?: string;
  expired?: boolean;
}

export function Profile() {
  const [tokens, setTokens] = useState<Token[] | null>(null);
  const [error, setError] = useState<unknown>(null);
  const load = () => get<{ data: Token[] }>("/v3/tokens").then((answer) => setTokens(answer.data), setError);
  useEffect(() => void load(), []);
  const revoke = async (token: Token) => {
    const body = <p>{t("Whoever uses it has to log in again. If it is the session of this page, so do you.")}</p>;
    if (!(await confirm({ title: t("Revoke {id}?", { id: token.id }), body, action: t("Revoke"), danger: true }))) return;
    await perform(`${t("Revoke")}: ${token.id}`, () => request("DELETE", `/v3/tokens/${encodeURIComponent(token.id)}`));
    await load();
  };
  return (
    <Page title={t("Sessions and tokens")} beside={<span class="muted">{user.value ? user.value.name : ""}</span>}>
      <ErrorNote error={error} />
      <section class="card scroll-x">
        <table class="plain">
          <thead>
            <tr>
              {["Name", "Description", "Age", "Ends", ""].map((label) => (
                <th key={label}>{label ? t(label) : <span class="sr-only">{t("Actions")}</span>}</th>
              ))}
            </tr>
          </thead>
          <tbody>
            {(tokens ?? []).map((token) => (
              <tr key={token.id}>
                <td class="mono">{token.id}</td>
                <td>{token.description || "–"}</td>
                <td>
                  <Age time={token.created} />
                </td>
                <td>{token.expired ? t("expired") : exactTime(token.expiresAt) || t("never")}</td>
                <td class="right">
                  <Button small look="danger" onClick={() => void revoke(token)}>
                    {t("Revoke")}
                  </Button>
                </td>
              </tr>
            ))}
            {tokens?.length === 0 && (
              <tr>
                <td colSpan={5} class="muted">
                  {t("No sessions")}
                </td>
              </tr>
            )}
          </tbody>
        </table>
      </section>
    </Page>
  );
}
