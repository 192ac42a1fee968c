// The number that marks styles which scripts of this page add.
let read: string | undefined;

export function nonce(): string {
  read ??= document.querySelector<HTMLMetaElement>("meta[name=csp-nonce]")?.content ?? "";
  return read;
}

/** Runs code of others that adds styles by itself, and marks these. */
export function withStyleNonce<T>(work: () => T): T {
  const create = document.createElement;
  document.createElement = function marked(this: Document, name: string, options?: ElementCreationOptions) {
    const element = create.call(this, name, options);
    if (name.toLowerCase() === "style") element.setAttribute("nonce", nonce());
    return element;
  } as typeof document.createElement;
  try {
    return work();
  } finally {
    document.createElement = create;
  }
}
