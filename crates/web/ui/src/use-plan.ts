import { useState } from "preact/hooks";
import { asApiError, type ApiError } from "./errors";

export interface Planned<T> {
  /** The last plan; null: none yet. */
  plan: T | null;
  /** The plan is for the present request. */
  isCurrent: boolean;
  error: ApiError | null;
  isBusy: boolean;
  make(): void;
}

/** Asks for a plan of a request on demand; `key` says which request it is for. */
export function usePlan<T>(key: string, ask: () => Promise<T>): Planned<T> {
  const [planned, setPlanned] = useState<{ key: string; plan: T } | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  const [isBusy, setBusy] = useState(false);
  const make = async () => {
    setBusy(true);
    setError(null);
    try {
      setPlanned({ key, plan: await ask() });
    } catch (failure) {
      setError(asApiError(failure, "plan"));
    }
    setBusy(false);
  };
  return { plan: planned?.plan ?? null, isCurrent: planned?.key === key, error, isBusy, make: () => void make() };
}
