// The pages of a file of their own, which a browser loads when the first of them is opened.
export { AuditPage } from "./audit";
export { DiscoveryPage } from "./discovery";
export { UsagePage } from "./usage";
