// How well a text matches what was typed: letters in order, better at beginnings of words and in
// a row. 0 is no match.
export function score(typed: string, text: string): number {
  const wanted = typed.toLowerCase().replace(/\s+/g, "");
  if (wanted === "") return 1;
  const within = text.toLowerCase();
  let total = 0;
  let from = 0;
  let before = -2;
  for (const letter of wanted) {
    const at = within.indexOf(letter, from);
    if (at < 0) return 0;
    const start = at === 0 || /[\s\-./]/.test(within[at - 1]);
    total += at === before + 1 ? 5 : start ? 4 : 1;
    before = at;
    from = at + 1;
  }
  const whole = within.includes(typed.toLowerCase().trim()) ? 20 : 0;
  return total + whole + 5 / (1 + within.length);
}
