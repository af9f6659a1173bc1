import type { ComponentChildren } from "preact";
import { useId } from "preact/hooks";
import { Icon, type IconName } from "./icon";

interface Props {
  children: ComponentChildren;
  onClick?(): void;
  kind?: "plain" | "primary" | "danger" | "quiet";
  /** Why the button cannot be used now; empty: it can. */
  why?: string;
  icon?: IconName;
  type?: "button" | "submit";
  isBusy?: boolean;
}

/** A button. One that cannot be used stays reachable, and says why. */
export function Button({ children, onClick, kind = "plain", why = "", icon, type = "button", isBusy = false }: Props) {
  const id = useId();
  const isOff = why !== "" || isBusy;
  return (
    <span class="button-place" data-why={why || undefined}>
      <button
        type={type}
        class={`button ${kind}`}
        aria-disabled={isOff}
        aria-describedby={why ? id : undefined}
        onClick={(event) => {
          if (isOff) {
            event.preventDefault();
          } else {
            onClick?.();
          }
        }}
      >
        {icon && <Icon name={icon} />}
        <span>{children}</span>
      </button>
      {why && (
        <span class="why" role="tooltip" id={id}>
          {why}
        </span>
      )}
    </span>
  );
}
