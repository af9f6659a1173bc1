/** A failed call: what the API says about it, for people. */
export class ApiError extends Error {
  readonly code: string;
  /** What to do about it; empty: the API gave no hint. */
  readonly hint: string;
  readonly fields: { field: string; description: string }[];
  /** The method that failed. */
  readonly method: string;

  constructor(method: string, code: string, message: string, hint = "", fields: ApiError["fields"] = []) {
    super(message);
    this.name = "ApiError";
    this.method = method;
    this.code = code;
    this.hint = hint;
    this.fields = fields;
  }

  /** The same request may succeed later. */
  get isTransient(): boolean {
    return TRANSIENT.has(this.code);
  }
}

const TRANSIENT = new Set(["unavailable", "deadline_exceeded", "resource_exhausted", "internal", "unknown"]);

interface Detail {
  type?: string;
  debug?: {
    message?: string;
    fieldViolations?: { field?: string; description?: string }[];
    violations?: { subject?: string; description?: string }[];
  };
}

/** Reads an error of Connect, or of the login. */
export function readError(method: string, body: unknown, status: number): ApiError {
  const { code, message, details } = (body ?? {}) as { code?: string; message?: string; details?: Detail[] };
  let hint = "";
  const fields: ApiError["fields"] = [];
  for (const { type, debug } of details ?? []) {
    if (type === "google.rpc.LocalizedMessage") {
      hint = debug?.message ?? "";
    }
    for (const violation of debug?.fieldViolations ?? []) {
      fields.push({ field: violation.field ?? "", description: violation.description ?? "" });
    }
    for (const violation of debug?.violations ?? []) {
      fields.push({ field: violation.subject ?? "", description: violation.description ?? "" });
    }
  }
  const word = code ?? (status === 401 ? "unauthenticated" : "unknown");
  return new ApiError(method, word, message ?? `the server answered with HTTP status ${status}`, hint, fields);
}

interface RestDetail {
  "@type"?: string;
}

/** Reads an error of REST. */
export function readRestError(method: string, body: unknown, status: number): ApiError {
  const { error } = (body ?? {}) as { error?: { status?: string; message?: string; details?: RestDetail[] } };
  const details = error?.details?.map((debug) => ({ type: debug["@type"]?.replace(/^.*\//, ""), debug }));
  const code = error?.status?.toLowerCase().replace("cancelled", "canceled");
  return readError(method, { code, message: error?.message, details }, status);
}

export function unreachable(method: string): ApiError {
  return new ApiError(method, "unavailable", "the control plane cannot be reached");
}

export function asApiError(error: unknown, method: string): ApiError {
  if (error instanceof ApiError) {
    return error;
  }
  return new ApiError(method, "unknown", error instanceof Error ? error.message : String(error));
}
