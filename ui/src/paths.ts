// Where the pages of objects are.

export function machinePath(namespace: string, name: string, tab = ""): string {
  const path = `/machines/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;
  return tab === "" ? path : `${path}/${tab}`;
}

export const volumePath = (namespace: string, name: string): string => `/volumes/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;

export const hostPath = (name: string): string => `/hosts/${encodeURIComponent(name)}`;
