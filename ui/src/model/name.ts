// Names of objects that the page makes.
import { t } from "../messages.ts";

/** Machines get disks whose names begin with theirs. */
const LONGEST = 58;

/** Why a text cannot be the name of an object; nothing if it can. */
export function invalidName(name: string): string | undefined {
  if (!/^[a-z0-9]([-a-z0-9]*[a-z0-9])?$/.test(name)) return t("A name has lower-case letters, digits and '-'");
  return name.length > LONGEST ? t("The name is too long") : undefined;
}
