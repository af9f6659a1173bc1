import type { ComponentChildren } from "preact";
import { ApiError } from "../errors";
import { Button } from "./button";
import { Prose } from "./prose";
import { Glyph } from "./state";

/** An error where it happened, with its hint. */
export function Problem({ error, doing, retry }: { error: ApiError | null; doing?: string; retry?(): void }) {
  if (error === null) {
    return null;
  }
  return (
    <div class="problem" role="alert">
      <Glyph tone="bad" />
      <div>
        <p>
          {doing && <strong>Cannot {doing}: </strong>}
          <Prose text={error.message} />
        </p>
        {error.fields.length > 0 && (
          <ul>
            {error.fields.map(({ field, description }) => (
              <li key={field}>
                <code>{field}</code> <Prose text={description} />
              </li>
            ))}
          </ul>
        )}
        {error.hint && (
          <p class="hint">
            <Prose text={error.hint} />
          </p>
        )}
        {error.code === "permission_denied" && !error.hint && (
          <p class="hint">Your role does not allow this call. An operator can change your role.</p>
        )}
      </div>
      {retry && (
        <Button kind="quiet" onClick={retry}>
          Try again
        </Button>
      )}
    </div>
  );
}

/** Nothing to show, and what to do next. */
export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <p class="empty-title">{title}</p>
      {children}
    </div>
  );
}

/** The shape of what is being read. */
export function Loading({ what, lines = 3 }: { what: string; lines?: number }) {
  return (
    <div class="loading" role="status">
      <span class="sr">Reading {what}</span>
      {Array.from({ length: lines }, (_, index) => (
        <span class="bone" key={index} />
      ))}
    </div>
  );
}
