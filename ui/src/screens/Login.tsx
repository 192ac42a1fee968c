import { useEffect, useState } from "preact/hooks";
import { ApiError, expired } from "../api/http.ts";
import { hasSession, logIn } from "../api/session.ts";
import { Button } from "../components/Button.tsx";
import { Dialog } from "../components/Dialog.tsx";
import { Field } from "../components/Field.tsx";
import { ErrorNote } from "../components/Note.tsx";
import { ProviderError, ProviderLogin } from "../components/ProviderLogin.tsx";
import { t } from "../messages.ts";
import icon from "../icon.svg";

const USER = "sheaf.user";

function useLogin(onDone: () => void) {
  const [name, setName] = useState(localStorage.getItem(USER) ?? "admin");
  const [password, setPassword] = useState("");
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const submit = async () => {
    if (busy) return;
    setBusy(true);
    setError(null);
    try {
      await logIn(name, password);
      localStorage.setItem(USER, name);
      onDone();
    } catch (failure) {
      const wrong = failure instanceof ApiError && failure.status === 401;
      setError(wrong ? new Error(t("The user or the password is wrong.")) : failure);
      setPassword("");
    } finally {
      setBusy(false);
    }
  };
  const fields = (
    <>
      <ErrorNote error={error} />
      <Field label={t("User")}>
        <input class="input" name="username" autoComplete="username" required value={name} onInput={(event) => setName(event.currentTarget.value)} />
      </Field>
      <Field label={t("Password")}>
        <input
          class="input"
          name="password"
          type="password"
          autoComplete="current-password"
          autoFocus
          required
          value={password}
          onInput={(event) => setPassword(event.currentTarget.value)}
        />
      </Field>
    </>
  );
  return { fields, submit, busy };
}

export function Login() {
  const { fields, submit, busy } = useLogin(() => undefined);
  return (
    <main class="login">
      <form onSubmit={(event) => (event.preventDefault(), void submit())}>
        <div class="logo">
          <img src={icon} alt="" />
          <div>
            <h1>Sheaf</h1>
            <span class="muted">{t("Machines, volumes and networks")}</span>
          </div>
        </div>
        <ProviderError />
        {fields}
        <Button submit look="primary" disabled={busy}>
          {busy ? t("Logging in…") : t("Log in")}
        </Button>
        <ProviderLogin />
        <p class="faint">{t("The first password was printed when the server started, and is in the file admin-password of its data directory.")}</p>
      </form>
    </main>
  );
}

/** Over the page, when the session has ended: what was typed stays, and requests go on. */
export function LoginAgain() {
  const { fields, submit, busy } = useLogin(() => expired.value?.());
  useEffect(() => {
    // The user may come back from a login in another tab.
    const check = () => void hasSession().then((found) => found && expired.value?.());
    window.addEventListener("focus", check);
    return () => window.removeEventListener("focus", check);
  }, []);
  const footer = (
    <>
      <ProviderLogin newTab />
      <Button submit look="primary" disabled={busy}>
        {t("Log in")}
      </Button>
    </>
  );
  return (
    <Dialog title={t("Your session has ended")} onClose={() => undefined} onSubmit={() => void submit()} footer={footer}>
      <div class="stack">
        <p class="muted">{t("Log in again to go on. Nothing on the page is lost.")}</p>
        {fields}
      </div>
    </Dialog>
  );
}
