import type { ComponentChildren, TargetedMouseEvent } from "preact";
import { Icon, type IconName } from "./Icon.tsx";

interface Props {
  children?: ComponentChildren;
  icon?: IconName;
  /** For buttons that show only an icon. */
  label?: string;
  look?: "plain" | "primary" | "quiet" | "danger";
  small?: boolean;
  submit?: boolean;
  pressed?: boolean;
  /** Why the button cannot be used now; shown as its title. */
  disabled?: string | boolean;
  class?: string;
  onClick?: (event: TargetedMouseEvent<HTMLButtonElement>) => void;
}

export function Button(props: Props) {
  const { children, icon, label, look = "plain", disabled = false, small, submit, pressed, onClick } = props;
  const classes = ["button", look === "plain" ? "" : look, small ? "small" : "", children ? "" : "icon-only", props.class ?? ""];
  return (
    <button
      type={submit ? "submit" : "button"}
      class={classes.filter(Boolean).join(" ")}
      aria-label={children ? undefined : label}
      aria-pressed={pressed}
      aria-disabled={disabled ? true : undefined}
      title={typeof disabled === "string" ? disabled : label}
      onClick={(event) => {
        if (disabled) event.preventDefault();
        else onClick?.(event);
      }}
    >
      {icon && <Icon name={icon} />}
      {children}
    </button>
  );
}
