// Written from proto/ by a program; do not edit.

export type ClusterState =
  | "CLUSTER_STATE_UNSPECIFIED"
  | "CLUSTER_STATE_RESERVED"
  | "CLUSTER_STATE_BUILDING"
  | "CLUSTER_STATE_VALIDATING"
  | "CLUSTER_STATE_READY"
  | "CLUSTER_STATE_DEGRADED"
  | "CLUSTER_STATE_RELEASING"
  | "CLUSTER_STATE_RELEASED"
  | "CLUSTER_STATE_FAILED"
  | "CLUSTER_STATE_RESIZING"
  | "CLUSTER_STATE_REIMAGING";

export type EraseMethod =
  | "ERASE_METHOD_UNSPECIFIED"
  | "ERASE_METHOD_NVME_SANITIZE_CRYPTO"
  | "ERASE_METHOD_NVME_SANITIZE_BLOCK"
  | "ERASE_METHOD_NVME_FORMAT_CRYPTO"
  | "ERASE_METHOD_NVME_FORMAT_USER_DATA"
  | "ERASE_METHOD_ATA_SECURE_ERASE_ENHANCED"
  | "ERASE_METHOD_ATA_SECURE_ERASE"
  | "ERASE_METHOD_DISCARD_ZEROED"
  | "ERASE_METHOD_OVERWRITE";

export type EventSeverity =
  | "EVENT_SEVERITY_UNSPECIFIED"
  | "EVENT_SEVERITY_INFO"
  | "EVENT_SEVERITY_WARNING"
  | "EVENT_SEVERITY_ERROR";

export type ImageFormat =
  | "IMAGE_FORMAT_UNSPECIFIED"
  | "IMAGE_FORMAT_RAW"
  | "IMAGE_FORMAT_ZSTD"
  | "IMAGE_FORMAT_GZIP"
  | "IMAGE_FORMAT_XZ"
  | "IMAGE_FORMAT_QCOW2";

export type JobState =
  | "JOB_STATE_UNSPECIFIED"
  | "JOB_STATE_RUNNING"
  | "JOB_STATE_SUCCEEDED"
  | "JOB_STATE_FAILED"
  | "JOB_STATE_REFUSED";

export type NodeHealth =
  | "NODE_HEALTH_UNSPECIFIED"
  | "NODE_HEALTH_OK"
  | "NODE_HEALTH_UNKNOWN"
  | "NODE_HEALTH_UNREACHABLE"
  | "NODE_HEALTH_LOGIN_REFUSED"
  | "NODE_HEALTH_DOUBTED";

export type NodeState =
  | "NODE_STATE_UNSPECIFIED"
  | "NODE_STATE_DISCOVERED"
  | "NODE_STATE_INSPECTING"
  | "NODE_STATE_AVAILABLE"
  | "NODE_STATE_ALLOCATED"
  | "NODE_STATE_IMAGING"
  | "NODE_STATE_REBOOTING"
  | "NODE_STATE_VALIDATING"
  | "NODE_STATE_ACTIVE"
  | "NODE_STATE_RECLAIMING"
  | "NODE_STATE_FAILED"
  | "NODE_STATE_QUARANTINED"
  | "NODE_STATE_MAINTENANCE";

export type PowerAction =
  | "POWER_ACTION_UNSPECIFIED"
  | "POWER_ACTION_ON"
  | "POWER_ACTION_OFF"
  | "POWER_ACTION_CYCLE";

export type RebootWay =
  | "REBOOT_WAY_UNSPECIFIED"
  | "REBOOT_WAY_RESET"
  | "REBOOT_WAY_POWER_OFF";

export type Role =
  | "ROLE_UNSPECIFIED"
  | "ROLE_VIEWER"
  | "ROLE_OPERATOR"
  | "ROLE_CUSTOMER_ADMIN"
  | "ROLE_CUSTOMER_USER"
  | "ROLE_AUDITOR";

export type SettingStanding =
  | "SETTING_STANDING_UNSPECIFIED"
  | "SETTING_STANDING_AS_WANTED"
  | "SETTING_STANDING_PENDING"
  | "SETTING_STANDING_DIFFERS"
  | "SETTING_STANDING_READ_ONLY"
  | "SETTING_STANDING_MISSING";

export type TopologyKind =
  | "TOPOLOGY_KIND_UNSPECIFIED"
  | "TOPOLOGY_KIND_RACKS"
  | "TOPOLOGY_KIND_SWITCHES"
  | "TOPOLOGY_KIND_BUNDLES";

export type TpmClear =
  | "TPM_CLEAR_UNSPECIFIED"
  | "TPM_CLEAR_CLEARED"
  | "TPM_CLEAR_NO_TPM";

export type Verdict =
  | "VERDICT_UNSPECIFIED"
  | "VERDICT_PASS"
  | "VERDICT_FAIL"
  | "VERDICT_NOT_APPLICABLE";

export interface AcCycleNodeRequest {
  name?: string;
  force?: boolean;
  mutation?: Mutation;
}

export interface AddFactoryCredentialRequest {
  pattern?: string;
  username?: string;
  password?: string;
  order?: number;
  mutation?: Mutation;
}

export interface AddFirmwareRequest {
  component?: string;
  version?: string;
  fileName?: string;
  sha256?: string;
  data?: string;
}

export interface AddGoldenFirmwareRequest {
  node?: string;
  reason?: string;
  values?: string;
  mutation?: Mutation;
}

export interface AddSshKeyRequest {
  publicKey?: string;
  mutation?: Mutation;
}

export interface AgentMessage {
  hello?: Hello;
  heartbeat?: Heartbeat;
  inventory?: Inventory;
  job?: JobReport;
  attestation?: Attestation;
  neighbours?: Neighbours;
}

export interface Alarm {
  name?: string;
  kind?: string;
  subject?: string;
  severity?: string;
  message?: string;
  advice?: string;
  measured?: number;
  limit?: number;
  unit?: string;
  nodeCount?: number;
  nodes?: string[];
  blocks?: boolean;
  cordons?: boolean;
  openTime?: string;
  seenTime?: string;
}

export interface ApiKey {
  name?: string;
  member?: string;
  customer?: string;
  role?: Role;
  label?: string;
  createTime?: string;
  lastUseTime?: string;
  expireTime?: string;
}

export interface ApplyNodeSettingsRequest {
  name?: string;
  mutation?: Mutation;
}

export interface ApplySiteRequest {
  mutation?: Mutation;
  part?: SiteFilePart;
}

export interface AttachConsoleRequest {
  enter?: ConsoleEntry;
  input?: string;
}

export interface AttachConsoleResponse {
  output?: string;
  notice?: string;
}

export interface Attempt {
  operation?: string;
  effect?: string;
  number?: number;
  startTime?: string;
  endTime?: string;
  outcome?: string;
  detail?: string;
}

export interface Attestation {
  secret?: string;
  quote?: string;
  signature?: string;
  pcrs?: Record<string, string>;
  eventLog?: string;
  fault?: string;
  bmcProof?: string;
  bmcFault?: string;
}

export interface AuditChain {
  authority?: string;
  previousHash?: string;
  keys?: AuditKey[];
}

export interface AuditFilter {
  caller?: string;
  customer?: string;
  method?: string;
  target?: string;
  onlyFailed?: boolean;
  startTime?: string;
  endTime?: string;
}

export interface AuditKey {
  number?: number;
  publicKey?: string;
  signature?: string;
}

export interface AuditRecord {
  position?: string;
  time?: string;
  call?: string;
  caller?: string;
  role?: string;
  epoch?: string;
  customer?: string;
  address?: string;
  client?: string;
  method?: string;
  request?: string;
  target?: string;
  site?: string;
  outcome?: string;
  message?: string;
  operation?: string;
  trace?: string;
  replica?: string;
  calls?: string;
  hash?: string;
  key?: string;
  signature?: string;
}

export interface BatchEnrollNodesRequest {
  requests?: EnrollNodeRequest[];
  mutation?: Mutation;
}

export interface BatchEnrollNodesResponse {
  operations?: Operation[];
}

export interface BeginChunks {
  operation?: string;
  held?: string;
  fetching?: number[];
  port?: number;
}

export interface BeginDeviceLoginRequest {
  csrPem?: string;
}

export interface BeginDeviceLoginResponse {
  login?: string;
  provider?: string;
  verificationUrl?: string;
  completeVerificationUrl?: string;
  userCode?: string;
  interval?: string;
  expireTime?: string;
}

export interface BelieveNodeRequest {
  name?: string;
  reason?: string;
  mutation?: Mutation;
}

export interface Bmc {
  address?: string;
  username?: string;
  password?: string;
  certificateSha256?: string;
  system?: string;
}

export interface BmcLogEntry {
  log?: string;
  id?: string;
  createTime?: string;
  severity?: string;
  messageId?: string;
  message?: string;
}

export interface BmcLogInfo {
  id?: string;
  path?: string;
  read?: number;
  canClear?: boolean;
}

export interface BmcWork {
  name?: string;
  wanted?: string;
  requestedBy?: string;
  requestTime?: string;
  done?: string;
  doneTime?: string;
  error?: string;
}

export interface BootStage {
  time?: string;
  stage?: string;
  detail?: string;
  remote?: string;
}

export interface CancelJob {
  operation?: string;
}

export interface CancelOperationRequest {
  name?: string;
  mutation?: Mutation;
}

export interface Capacity {
  customer?: string;
  skus?: SkuCapacity[];
  time?: string;
}

export interface Challenge {
  nonce?: string;
  credentialBlob?: string;
  credentialSeed?: string;
  node?: string;
  claimGeneration?: string;
  boot?: string;
  bmcSecret?: boolean;
}

export interface Check {
  id?: string;
  verdict?: Verdict;
  measured?: string;
  threshold?: string;
  source?: string;
  detail?: string;
}

export interface ChunkCame {
  chunk?: number;
  held?: string;
}

export interface ChunkGrant {
  chunk?: number;
  source?: PeerAgent;
  leaseMs?: number;
}

export interface ChunkMessage {
  begin?: BeginChunks;
  claim?: ClaimChunk;
  came?: ChunkCame;
  failed?: number;
  unreachable?: string;
  wrong?: WrongChunk;
  isAlone?: boolean;
}

export interface Claim {
  generation?: string;
  imageVersion?: string;
  hostname?: string;
  sshAuthorizedKeys?: string[];
  releaseRequested?: boolean;
  customer?: string;
  hasUserData?: boolean;
}

export interface ClaimChunk {
  wanted?: number;
  held?: string;
  stuck?: number[];
}

export interface ClearBmcLogRequest {
  name?: string;
  log?: string;
  mutation?: Mutation;
}

export interface Cluster {
  name?: string;
  spec?: ClusterSpec;
  status?: ClusterStatus;
  metadata?: Metadata;
}

export interface ClusterMember {
  node?: string;
  spare?: boolean;
  state?: NodeState;
  standing?: string;
  reason?: string;
  address?: string;
}

export interface ClusterPartition {
  key?: string;
  ports?: number;
  provenTime?: string;
  fault?: string;
  progress?: string;
}

export interface ClusterPlan {
  fits?: boolean;
  refusal?: string;
  nodes?: string[];
  spares?: string[];
  picture?: string;
  reservedWatts?: number;
}

export interface ClusterReplacement {
  node?: string;
  by?: string;
  time?: string;
  reason?: string;
}

export interface ClusterResizePlan {
  fits?: boolean;
  refusal?: string;
  join?: string[];
  leave?: string[];
  picture?: string;
  reservedWatts?: number;
}

export interface ClusterSize {
  nodes?: number;
  spares?: number;
  leave?: string[];
}

export interface ClusterSpec {
  customer?: string;
  sku?: string;
  nodes?: number;
  spares?: number;
  bandwidth?: string;
  deployment?: Deployment;
  leaseEnd?: string;
}

export interface ClusterStatus {
  state?: ClusterState;
  stateSince?: string;
  waitingFor?: string;
  waitingKind?: string;
  reason?: string;
  members?: ClusterMember[];
  partition?: ClusterPartition;
  reservedWatts?: number;
  history?: ClusterTransition[];
  rollout?: RolloutStatus;
  leaving?: string[];
  network?: string;
  readyNodes?: number;
  replaced?: ClusterReplacement[];
}

export interface ClusterTransition {
  edge?: string;
  fromState?: ClusterState;
  toState?: ClusterState;
  time?: string;
  reason?: string;
  timeInFormerState?: string;
}

export interface ComponentMeasurement {
  index?: number;
  what?: string;
  value?: string;
}

export interface ConsoleBoot {
  boot?: number;
  powerOnTime?: string;
  firstOutputTime?: string;
  sizeBytes?: string;
}

export interface ConsoleEntry {
  node?: string;
  readOnly?: boolean;
  takeOver?: boolean;
}

export interface ConsoleHostKey {
  node?: string;
  hostKeySha256?: string;
}

export interface Control {
  paused?: boolean;
  doubtedNodes?: string;
  warnings?: string[];
}

export interface ControlMessage {
  job?: Job;
  cancel?: CancelJob;
  renewed?: RegisterResponse;
  challenge?: Challenge;
}

export interface Cpu {
  socket?: number;
  model?: string;
  cores?: number;
  threads?: number;
  microcode?: string;
  maxMhz?: number;
}

export interface CreateApiKeyRequest {
  label?: string;
  role?: Role;
  lifetime?: string;
  mutation?: Mutation;
}

export interface CreateApiKeyResponse {
  key?: string;
  apiKey?: ApiKey;
}

export interface CreateClusterRequest {
  clusterId?: string;
  spec?: ClusterSpec;
  labels?: Record<string, string>;
  mutation?: Mutation;
}

export interface CreateConsoleTokenRequest {
  node?: string;
  lifetime?: string;
  mutation?: Mutation;
}

export interface CreateConsoleTokenResponse {
  token?: string;
  expireTime?: string;
}

export interface CreateLoginTokenRequest {
  mutation?: Mutation;
}

export interface CreateLoginTokenResponse {
  token?: string;
  url?: string;
  expireTime?: string;
}

export interface CreateTokenRequest {
  member?: string;
  role?: Role;
  lifetime?: string;
  mutation?: Mutation;
  customer?: string;
}

export interface CreateTokenResponse {
  token?: string;
  caSha256?: string;
  expireTime?: string;
}

export interface Credential {
  certificatePem?: string;
  caCertificatePem?: string;
  expireTime?: string;
  member?: string;
  role?: Role;
  customer?: string;
}

export interface DeleteApiKeyRequest {
  name?: string;
  mutation?: Mutation;
}

export interface DeleteClusterRequest {
  name?: string;
  mutation?: Mutation;
}

export interface DeleteImageRequest {
  name?: string;
  mutation?: Mutation;
}

export interface DeleteMemberRequest {
  name?: string;
  mutation?: Mutation;
}

export interface DeleteNodeRequest {
  name?: string;
  mutation?: Mutation;
}

export interface DeleteTermRequest {
  name?: string;
  mutation?: Mutation;
}

export interface DeleteTokenRequest {
  name?: string;
  mutation?: Mutation;
}

export interface DeployNodeRequest {
  name?: string;
  deployment?: Deployment;
  mutation?: Mutation;
}

export interface Deployment {
  image?: string;
  hostname?: string;
  sshAuthorizedKeys?: string[];
  userData?: string;
  rootDrive?: string;
  verifyWholeDisk?: boolean;
  customer?: string;
  hasUserData?: boolean;
}

export interface Discovery {
  name?: string;
  requestedBy?: string;
  createTime?: string;
  endTime?: string;
  phase?: string;
  message?: string;
  ranges?: string[];
  total?: string;
  reached?: string;
  silent?: string;
  counts?: Record<string, string>;
  operation?: string;
}

export interface DiscoveryLogin {
  name?: string;
  username?: string;
  password?: string;
}

export interface DiscoveryTarget {
  address?: string;
  login?: string;
  nodeId?: string;
  rack?: string;
  unit?: number;
  sku?: string;
  system?: string;
  labels?: Record<string, string>;
  source?: string;
}

export interface Dmi {
  systemVendor?: string;
  productName?: string;
  serialNumber?: string;
  uuid?: string;
  boardVendor?: string;
  boardName?: string;
  boardSerial?: string;
  biosVendor?: string;
  biosVersion?: string;
  biosDate?: string;
  chassisSerial?: string;
}

export interface Drive {
  name?: string;
  model?: string;
  serialNumber?: string;
  firmwareVersion?: string;
  wwn?: string;
  sizeBytes?: string;
  logicalBlockBytes?: number;
  physicalBlockBytes?: number;
  rotational?: boolean;
  removable?: boolean;
  readOnly?: boolean;
  transport?: string;
  pciAddress?: string;
  stableId?: string;
  eraseMethods?: EraseMethod[];
  nativeBytes?: string;
}

export interface DriveErase {
  driveName?: string;
  model?: string;
  serialNumber?: string;
  sizeBytes?: string;
  method?: EraseMethod;
  samples?: string;
  sampleBytes?: string;
  startTime?: string;
  endTime?: string;
  rejectedMethods?: string[];
  nativeBytes?: string;
  hiddenAreas?: string[];
}

export interface Empty {}

export interface EndSessionRequest {
  name?: string;
  mutation?: Mutation;
}

export interface EnrolFindingsRequest {
  parent?: string;
  findings?: string[];
  allNew?: boolean;
  nameTemplate?: string;
  sku?: string;
  labels?: Record<string, string>;
  update?: boolean;
  validateOnly?: boolean;
  mutation?: Mutation;
}

export interface EnrolFindingsResponse {
  findings?: EnrolledFinding[];
  remaining?: string;
}

export interface EnrollNodeRequest {
  nodeId?: string;
  spec?: NodeSpec;
  labels?: Record<string, string>;
  mutation?: Mutation;
  tpmEk?: string;
}

export interface EnrolledFinding {
  finding?: string;
  action?: string;
  node?: string;
  reason?: string;
  operation?: Operation;
}

export interface EraseCertificate {
  name?: string;
  node?: string;
  claimGeneration?: string;
  operation?: string;
  driveName?: string;
  driveModel?: string;
  driveSerial?: string;
  driveBytes?: string;
  method?: EraseMethod;
  startTime?: string;
  endTime?: string;
  samples?: string;
  sampleBytes?: string;
  rejectedMethods?: string[];
  signedPayload?: string;
  signature?: string;
  signerPublicKey?: string;
  witnesses?: string[];
  identity?: string;
  number?: string;
  attestationSha256?: string;
  evidence?: string[];
}

export interface EraseChainEntry {
  number?: string;
  payloadSha256?: string;
  certificate?: EraseCertificate;
}

export interface EraseChainHead {
  number?: string;
  hash?: string;
  time?: string;
  signature?: string;
  signerPublicKey?: string;
}

export interface EraseDrives {
  drives?: string[];
  samples?: number;
  clearBootEntries?: boolean;
  clearTpm?: boolean;
  recordedUefiVariables?: UefiVariables;
}

export interface EraseDrivesResult {
  drives?: DriveErase[];
  excluded?: ExcludedDevice[];
  tpm?: TpmClear;
  newUefiVariables?: NewUefiVariables;
}

export interface Event {
  position?: string;
  time?: string;
  kind?: string;
  target?: string;
  message?: string;
  attributes?: Record<string, string>;
  severity?: EventSeverity;
}

export interface ExcludedDevice {
  name?: string;
  sizeBytes?: string;
  reason?: string;
}

export interface ExplainNodeRequest {
  name?: string;
}

export interface ExplainPowerRequest {
  name?: string;
  pageSize?: number;
  pageToken?: string;
}

export interface ExplainPowerResponse {
  name?: string;
  nodes?: string[];
  nodeCount?: number;
  reservedWatts?: number;
  measuredWatts?: number;
  steps?: PowerStep[];
  nextPageToken?: string;
  psus?: PowerPsu[];
  losses?: PowerLoss[];
  alarms?: Alarm[];
}

export interface Explanation {
  node?: Node;
  summary?: string;
  hints?: string[];
  history?: Transition[];
  attempts?: Attempt[];
  facts?: FactLine[];
}

export interface FabricBreach {
  id?: string;
  kind?: string;
  text?: string;
  ports?: string;
  firstPorts?: string[];
  clusters?: string[];
  goodTime?: string;
  since?: string;
  seenTime?: string;
  endTime?: string;
}

export interface FabricCableEnds {
  a?: string;
  b?: string;
}

export interface FabricCapacity {
  bandwidth?: string;
  largestClusterNodes?: number;
}

export interface FabricFault {
  id?: string;
  kind?: string;
  fault?: string;
  cables?: string[];
  ends?: FabricCableEnds[];
  nodes?: string[];
  clusters?: string[];
  countingClusters?: string[];
  text?: string;
  since?: string;
}

export interface FactLine {
  name?: string;
  value?: string;
  time?: string;
}

export interface FactoryCredential {
  name?: string;
  pattern?: string;
  username?: string;
  order?: number;
  createdBy?: string;
  createTime?: string;
}

export interface Finding {
  name?: string;
  address?: string;
  otherAddresses?: string[];
  state?: string;
  reason?: string;
  node?: string;
  certificateSha256?: string;
  vendor?: string;
  product?: string;
  redfishVersion?: string;
  manufacturer?: string;
  model?: string;
  serial?: string;
  uuid?: string;
  macs?: string[];
  bmcFirmware?: string;
  username?: string;
  rack?: string;
  unit?: number;
  sku?: string;
  labels?: Record<string, string>;
  source?: string;
  loginTries?: number;
}

export interface FinishDeviceLoginRequest {
  login?: string;
}

export interface FinishDeviceLoginResponse {
  credential?: Credential;
  slowDown?: boolean;
}

export interface FinishUploadRequest {
  name?: string;
  mutation?: Mutation;
}

export interface Firmware {
  name?: string;
  component?: string;
  version?: string;
  fileName?: string;
  sizeBytes?: string;
  createTime?: string;
}

export interface FirmwareComponent {
  component?: string;
  signed?: boolean;
  measurements?: ComponentMeasurement[];
}

export interface FirmwareEntry {
  id?: string;
  title?: string;
  version?: string;
  softwareId?: string;
  updateable?: boolean;
}

export interface FirmwareRegister {
  pcr?: number;
  value?: string;
  measured?: string[];
}

export interface FirmwareReport {
  nodes?: NodeCompliance[];
  nextPageToken?: string;
}

export interface FirmwareRow {
  component?: string;
  id?: string;
  installed?: string;
  wanted?: string;
  verdict?: string;
  file?: string;
  order?: string;
}

export interface FleetCount {
  value?: string;
  nodes?: string;
  states?: Record<string, string>;
}

export interface FleetSummary {
  nodes?: string;
  agents?: string;
  states?: FleetCount[];
  healths?: FleetCount[];
  powers?: FleetCount[];
  waits?: FleetCount[];
  skus?: FleetCount[];
  customers?: FleetCount[];
}

export interface GetCapacityRequest {
  customer?: string;
}

export interface GetClusterRequest {
  name?: string;
}

export interface GetControlRequest {}

export interface GetCountersRequest {}

export interface GetCountersResponse {
  counters?: Record<string, string>;
}

export interface GetDiscoveryRequest {
  name?: string;
}

export interface GetFirmwareReportRequest {
  pageSize?: number;
  pageToken?: string;
}

export interface GetHandoverPackRequest {
  name?: string;
}

export interface GetImageRequest {
  name?: string;
}

export interface GetImageSpreadRequest {
  name?: string;
}

export interface GetMaintenanceWindowRequest {
  target?: string;
}

export interface GetNodeFirmwareRequest {
  name?: string;
}

export interface GetNodeRequest {
  name?: string;
  readMask?: string;
}

export interface GetNodeSettingsRequest {
  name?: string;
}

export interface GetOperationRequest {
  name?: string;
}

export interface GetPowerReportRequest {
  level?: string;
  pageSize?: number;
  pageToken?: string;
}

export interface GetPowerReportResponse {
  rows?: PowerHeadroom[];
  nextPageToken?: string;
  total?: number;
}

export interface GetSiteRequest {}

export interface GetSiteResponse {
  site?: Site;
  part?: SiteFilePart;
}

export interface GetTopologyRequest {
  kind?: TopologyKind;
  parent?: string;
  pageSize?: number;
  pageToken?: string;
}

export interface GetTopologyResponse {
  racks?: TopologyRack[];
  switches?: TopologySwitch[];
  bundles?: TopologyBundle[];
  nextPageToken?: string;
  total?: number;
  resourceVersion?: string;
}

export interface GetUploadRequest {
  name?: string;
}

export interface GoldenFirmware {
  name?: string;
  sku?: string;
  node?: string;
  approvedBy?: string;
  approveTime?: string;
  reason?: string;
  registers?: FirmwareRegister[];
  components?: FirmwareComponent[];
}

export interface Gpu {
  pciAddress?: string;
  vendorId?: number;
  deviceId?: number;
  model?: string;
}

export interface GrantMessage {
  mate?: PeerAgent;
  grant?: ChunkGrant;
}

export interface HandoverFile {
  name?: string;
  text?: string;
}

export interface HandoverPack {
  files?: HandoverFile[];
}

export interface Hca {
  name?: string;
  nodeGuid?: string;
  firmwareVersion?: string;
  boardId?: string;
  pciAddress?: string;
  ports?: HcaPort[];
}

export interface HcaPort {
  number?: number;
  portGuid?: string;
  state?: string;
  physicalState?: string;
  rate?: string;
  linkLayer?: string;
  lid?: number;
}

export interface Heartbeat {
  uptimeS?: number;
}

export interface Hello {
  bootId?: string;
  address?: string;
  mac?: string;
  agentVersion?: string;
  readyUptimeS?: number;
  jobs?: JobReport[];
  claimGeneration?: string;
  csrPem?: string;
  tpm?: TpmKeys;
  tpmFault?: string;
}

export interface HoldNodeRequest {
  name?: string;
  reason?: string;
  mutation?: Mutation;
}

export interface Image {
  name?: string;
  versions?: ImageVersion[];
  metadata?: Metadata;
}

export interface ImageSpread {
  name?: string;
  versions?: VersionSpread[];
}

export interface ImageVersion {
  name?: string;
  createTime?: string;
  logicalBytes?: string;
  dataBytes?: string;
  compressedBytes?: string;
  chunks?: number;
  sourceSha256?: string;
  sourceFormat?: ImageFormat;
  signedBy?: string;
  osId?: string;
  osVersion?: string;
  kernel?: string;
}

export interface Inventory {
  dmi?: Dmi;
  cpus?: Cpu[];
  numaNodes?: NumaNode[];
  memoryBytes?: string;
  memoryModules?: MemoryModule[];
  pciDevices?: PciDevice[];
  nics?: Nic[];
  hcas?: Hca[];
  drives?: Drive[];
  gpus?: Gpu[];
  tpm?: Tpm;
  firmwareVersions?: Record<string, string>;
  bootMode?: string;
  secureBoot?: boolean;
  kernelRelease?: string;
  architecture?: string;
  excludedDevices?: ExcludedDevice[];
  uefiVariables?: UefiVariables;
}

export interface Job {
  operation?: string;
  claimGeneration?: string;
  deadlineS?: number;
  writeImage?: WriteImage;
  eraseDrives?: EraseDrives;
  reboot?: RebootMachine;
}

export interface JobError {
  code?: string;
  message?: string;
  retryable?: boolean;
}

export interface JobProgress {
  step?: string;
  logicalBytes?: string;
  logicalBytesTotal?: string;
  realBytes?: string;
  bytesPerSecond?: string;
}

export interface JobReport {
  operation?: string;
  claimGeneration?: string;
  state?: JobState;
  progress?: JobProgress;
  error?: JobError;
  writeImage?: WriteImageResult;
  eraseDrives?: EraseDrivesResult;
  startTime?: string;
  endTime?: string;
}

export interface ListAlarmsRequest {
  pageSize?: number;
  pageToken?: string;
}

export interface ListAlarmsResponse {
  alarms?: Alarm[];
  nextPageToken?: string;
  coverage?: ReadingCoverage[];
}

export interface ListApiKeysRequest {
  pageSize?: number;
  pageToken?: string;
}

export interface ListApiKeysResponse {
  apiKeys?: ApiKey[];
  nextPageToken?: string;
}

export interface ListAuditRequest {
  pageSize?: number;
  pageToken?: string;
  filter?: AuditFilter;
}

export interface ListAuditResponse {
  records?: AuditRecord[];
  nextPageToken?: string;
}

export interface ListBmcLogEntriesRequest {
  name?: string;
  pageSize?: number;
  since?: string;
  severity?: string;
}

export interface ListBmcLogEntriesResponse {
  entries?: BmcLogEntry[];
  logs?: BmcLogInfo[];
  readTime?: string;
  work?: BmcWork;
  gaps?: string[];
  more?: boolean;
}

export interface ListClustersRequest {
  pageSize?: number;
  pageToken?: string;
  filter?: string;
}

export interface ListClustersResponse {
  clusters?: Cluster[];
  nextPageToken?: string;
}

export interface ListConsoleBootsRequest {
  node?: string;
}

export interface ListConsoleBootsResponse {
  boots?: ConsoleBoot[];
}

export interface ListDiscoveriesRequest {
  pageSize?: number;
  pageToken?: string;
}

export interface ListDiscoveriesResponse {
  discoveries?: Discovery[];
  nextPageToken?: string;
}

export interface ListEraseCertificatesRequest {
  parent?: string;
  pageSize?: number;
  pageToken?: string;
}

export interface ListEraseCertificatesResponse {
  eraseCertificates?: EraseCertificate[];
  nextPageToken?: string;
  signingKeys?: SigningKey[];
}

export interface ListEraseChainRequest {
  customer?: string;
  pageSize?: number;
  pageToken?: string;
}

export interface ListEraseChainResponse {
  entries?: EraseChainEntry[];
  nextPageToken?: string;
  signingKeys?: SigningKey[];
  head?: EraseChainHead;
}

export interface ListFabricFaultsRequest {}

export interface ListFabricFaultsResponse {
  faults?: FabricFault[];
  more?: number;
  checkTime?: string;
  problem?: string;
  breaches?: FabricBreach[];
  isolationCheckTime?: string;
  isolationProblem?: string;
}

export interface ListFactoryCredentialsRequest {}

export interface ListFactoryCredentialsResponse {
  credentials?: FactoryCredential[];
}

export interface ListFindingsRequest {
  parent?: string;
  pageSize?: number;
  pageToken?: string;
  state?: string;
}

export interface ListFindingsResponse {
  findings?: Finding[];
  nextPageToken?: string;
}

export interface ListFirmwareRequest {}

export interface ListFirmwareResponse {
  firmware?: Firmware[];
}

export interface ListGoldenFirmwareRequest {}

export interface ListGoldenFirmwareResponse {
  golden?: GoldenFirmware[];
}

export interface ListImagesRequest {
  pageSize?: number;
  pageToken?: string;
}

export interface ListImagesResponse {
  images?: Image[];
  nextPageToken?: string;
}

export interface ListMembersRequest {
  pageSize?: number;
  pageToken?: string;
}

export interface ListMembersResponse {
  members?: Member[];
  nextPageToken?: string;
}

export interface ListNodesRequest {
  pageSize?: number;
  pageToken?: string;
  filter?: string;
  readMask?: string;
  orderBy?: string;
}

export interface ListNodesResponse {
  nodes?: Node[];
  nextPageToken?: string;
}

export interface ListOperationsRequest {
  pageSize?: number;
  pageToken?: string;
  filter?: string;
}

export interface ListOperationsResponse {
  operations?: Operation[];
  nextPageToken?: string;
}

export interface ListReportsRequest {
  parent?: string;
  pageSize?: number;
  pageToken?: string;
}

export interface ListReportsResponse {
  reports?: Report[];
  nextPageToken?: string;
}

export interface ListSessionsRequest {
  pageSize?: number;
  pageToken?: string;
}

export interface ListSessionsResponse {
  sessions?: Session[];
  nextPageToken?: string;
}

export interface ListSettingsDriftRequest {
  pageSize?: number;
  pageToken?: string;
}

export interface ListSettingsDriftResponse {
  nodes?: NodeSettings[];
  nextPageToken?: string;
  knownNodes?: number;
  readNodes?: number;
}

export interface ListSshKeysRequest {}

export interface ListSshKeysResponse {
  keys?: SshKey[];
}

export interface ListTermsRequest {
  pageSize?: number;
  pageToken?: string;
  customer?: string;
}

export interface ListTermsResponse {
  terms?: Term[];
  nextPageToken?: string;
}

export interface ListTokensRequest {
  pageSize?: number;
  pageToken?: string;
}

export interface ListTokensResponse {
  tokens?: MemberToken[];
  nextPageToken?: string;
}

export interface ListUnknownMachinesRequest {
  pageSize?: number;
  pageToken?: string;
}

export interface ListUnknownMachinesResponse {
  machines?: UnknownMachine[];
  nextPageToken?: string;
}

export interface ListUsageBreachesRequest {
  pageSize?: number;
  pageToken?: string;
  startTime?: string;
  endTime?: string;
  customer?: string;
  cluster?: string;
}

export interface ListUsageBreachesResponse {
  breaches?: UsageBreach[];
  nextPageToken?: string;
  startTime?: string;
  endTime?: string;
}

export interface ListUsageRequest {
  pageSize?: number;
  pageToken?: string;
  startTime?: string;
  endTime?: string;
  customer?: string;
  cluster?: string;
}

export interface ListUsageResponse {
  records?: UsageRecord[];
  nextPageToken?: string;
  startTime?: string;
  endTime?: string;
}

export interface MaintenanceWindow {
  target?: string;
  weekly?: WeeklyWindow[];
  once?: OnceWindow[];
}

export interface Member {
  name?: string;
  role?: Role;
  customer?: string;
  createTime?: string;
  lastUseTime?: string;
  certificateExpireTime?: string;
  issuer?: string;
}

export interface MemberToken {
  name?: string;
  member?: string;
  role?: Role;
  customer?: string;
  createdBy?: string;
  expireTime?: string;
}

export interface MemoryModule {
  slot?: string;
  sizeBytes?: string;
  manufacturer?: string;
  partNumber?: string;
  serialNumber?: string;
  speedMts?: number;
}

export interface Metadata {
  uid?: string;
  resourceVersion?: string;
  createTime?: string;
  updateTime?: string;
  labels?: Record<string, string>;
}

export interface Mutation {
  idempotencyKey?: string;
  resourceVersion?: string;
}

export interface Neighbour {
  nic?: string;
  mac?: string;
  chassisId?: string;
  portId?: string;
  portDescription?: string;
  systemName?: string;
}

export interface Neighbours {
  neighbours?: Neighbour[];
}

export interface NewUefiVariables {
  removed?: string[];
  left?: string[];
}

export interface Nic {
  name?: string;
  mac?: string;
  driver?: string;
  pciAddress?: string;
  firmwareVersion?: string;
  linkUp?: boolean;
  speedMbps?: number;
  addresses?: string[];
  neighbour?: string;
}

export interface Node {
  name?: string;
  spec?: NodeSpec;
  status?: NodeStatus;
  metadata?: Metadata;
}

export interface NodeCompliance {
  node?: string;
  sku?: string;
  state?: string;
  seenTime?: string;
  rows?: FirmwareRow[];
}

export interface NodeFirmware {
  name?: string;
  seenTime?: string;
  rows?: FirmwareRow[];
  inventory?: FirmwareEntry[];
  ways?: string[];
  underWay?: string;
}

export interface NodeSetting {
  name?: string;
  wanted?: string;
  current?: string;
  pending?: string;
  standing?: SettingStanding;
}

export interface NodeSettings {
  name?: string;
  sku?: string;
  settings?: NodeSetting[];
  readTime?: string;
  verifyTime?: string;
  driftTime?: string;
}

export interface NodeSpec {
  bmc?: Bmc;
  sku?: string;
  bootMacs?: string[];
}

export interface NodeStatus {
  state?: NodeState;
  stateSince?: string;
  stateDeadline?: string;
  waitingFor?: string;
  waitingUntil?: string;
  reason?: string;
  claim?: Claim;
  claimGeneration?: string;
  power?: string;
  agentConnected?: boolean;
  address?: string;
  macs?: string[];
  inventory?: Inventory;
  imageWritten?: string;
  bmcPasswordChangeTime?: string;
  addressWitness?: string;
  doubt?: string;
  doubtSince?: string;
  identity?: string;
  tpmEk?: string;
  health?: NodeHealth;
  healthReason?: string;
}

export interface NumaNode {
  id?: number;
  cpuList?: string;
  memoryBytes?: string;
}

export interface OnceWindow {
  startTime?: string;
  endTime?: string;
}

export interface OpenSessionRequest {
  token?: string;
}

export interface OpenSessionResponse {
  secret?: string;
  expireTime?: string;
}

export interface Operation {
  name?: string;
  kind?: string;
  target?: string;
  requestedBy?: string;
  createTime?: string;
  endTime?: string;
  deadline?: string;
  done?: boolean;
  error?: Status;
  progress?: Progress;
  cancelRequested?: boolean;
  metadata?: Metadata;
}

export interface PciDevice {
  address?: string;
  vendorId?: number;
  deviceId?: number;
  subsystemVendorId?: number;
  subsystemDeviceId?: number;
  classCode?: number;
  revision?: number;
  driver?: string;
  numaNode?: number;
  linkSpeed?: string;
  maxLinkSpeed?: string;
  linkWidth?: number;
  maxLinkWidth?: number;
}

export interface PeerAgent {
  node?: string;
  claimGeneration?: string;
  boot?: string;
  address?: string;
}

export interface Peers {
  ticket?: string;
  ticketSignature?: string;
  ticketKeys?: string[];
  customer?: string;
  isPublic?: boolean;
  port?: number;
}

export interface PlanClusterRequest {
  clusterId?: string;
  spec?: ClusterSpec;
}

export interface PlanClusterResizeRequest {
  name?: string;
  size?: ClusterSize;
}

export interface PlanSiteRequest {
  part?: SiteFilePart;
}

export interface PlanSiteResponse {
  findings?: SiteFinding[];
  changes?: SiteChange[];
  conflicts?: string[];
  resourceVersion?: string;
}

export interface PowerHeadroom {
  kind?: string;
  name?: string;
  feed?: string;
  deratedWatts?: number;
  reservedWatts?: number;
  worstWatts?: number;
  measuredWatts?: number;
  headroomWatts?: number;
  strandedWatts?: number;
}

export interface PowerLoss {
  feed?: string;
  live?: number;
  liveWatts?: number;
  survives?: boolean;
}

export interface PowerPsu {
  psu?: number;
  outlet?: string;
  watts?: number;
  outletWatts?: number;
}

export interface PowerStep {
  kind?: string;
  name?: string;
  parent?: string;
  feed?: string;
  ratedWatts?: number;
  deratedWatts?: number;
  reservedWatts?: number;
  ownWatts?: number;
  measuredWatts?: number;
  nodes?: number;
  startsAtOnce?: number;
}

export interface Progress {
  step?: string;
  percent?: number;
  logicalBytes?: string;
  logicalBytesTotal?: string;
  realBytes?: string;
  bytesPerSecond?: string;
}

export interface ProveDatabaseRequest {
  challenge?: string;
  proof?: string;
}

export interface QuarantineNodeRequest {
  name?: string;
  reason?: string;
  mutation?: Mutation;
}

export interface RackSpread {
  rack?: string;
  heldChunks?: number;
  grants?: number;
  alone?: number;
  agents?: SpreadAgent[];
}

export interface ReadBmcLogRequest {
  name?: string;
  mutation?: Mutation;
}

export interface ReadConsoleLogRequest {
  node?: string;
  sinceTime?: string;
  untilTime?: string;
  boot?: number;
  follow?: boolean;
}

export interface ReadConsoleLogResponse {
  time?: string;
  bootTime?: string;
  output?: string;
}

export interface ReadingCoverage {
  kind?: string;
  known?: number;
  read?: number;
}

export interface ReadmitNodeRequest {
  name?: string;
  mutation?: Mutation;
  confirmErase?: boolean;
  acceptDrives?: boolean;
  acceptTpm?: string;
}

export interface RebootMachine {
  way?: RebootWay;
}

export interface RedeemTokenRequest {
  token?: string;
  csrPem?: string;
}

export interface RegisterRequest {
  token?: string;
  csrPem?: string;
  mac?: string;
  systemUuid?: string;
  bootId?: string;
  agentVersion?: string;
}

export interface RegisterResponse {
  certificatePem?: string;
  expireTime?: string;
  node?: string;
  claimGeneration?: string;
  heartbeatS?: number;
  caCertificatePem?: string;
}

export interface ReimageClusterRequest {
  name?: string;
  deployment?: Deployment;
  rollout?: Rollout;
  mutation?: Mutation;
}

export interface ReimageNodeRequest {
  name?: string;
  deployment?: Deployment;
  mutation?: Mutation;
}

export interface ReleaseClusterRequest {
  name?: string;
  mutation?: Mutation;
}

export interface ReleaseNodeRequest {
  name?: string;
  mutation?: Mutation;
}

export interface RemoveFactoryCredentialRequest {
  name?: string;
  mutation?: Mutation;
}

export interface RemoveFirmwareRequest {
  name?: string;
  mutation?: Mutation;
}

export interface RemoveGoldenFirmwareRequest {
  name?: string;
  mutation?: Mutation;
}

export interface RemoveSshKeyRequest {
  fingerprint?: string;
  mutation?: Mutation;
}

export interface RenewCredentialRequest {
  csrPem?: string;
}

export interface ReplaceClusterNodeRequest {
  name?: string;
  node?: string;
  reason?: string;
  mutation?: Mutation;
}

export interface Report {
  name?: string;
  claimGeneration?: string;
  startTime?: string;
  endTime?: string;
  passed?: boolean;
  checks?: Check[];
  profile?: string;
}

export interface ResizeClusterRequest {
  name?: string;
  size?: ClusterSize;
  mutation?: Mutation;
}

export interface ResumeClusterReimageRequest {
  name?: string;
  rollout?: Rollout;
  mutation?: Mutation;
}

export interface ResumeControlRequest {
  mutation?: Mutation;
}

export interface ResumeNodeRequest {
  name?: string;
  mutation?: Mutation;
  confirmErase?: boolean;
}

export interface RetryClusterRequest {
  name?: string;
  mutation?: Mutation;
}

export interface RetryNodeRequest {
  name?: string;
  mutation?: Mutation;
}

export interface RevokeMemberRequest {
  name?: string;
  mutation?: Mutation;
}

export interface RollBackClusterRequest {
  name?: string;
  rollout?: Rollout;
  mutation?: Mutation;
}

export interface Rollout {
  maxUnavailable?: number;
  anyLeaf?: boolean;
  maxFailures?: number;
  rollBack?: boolean;
}

export interface RolloutStatus {
  rollout?: Rollout;
  done?: number;
  of?: number;
  failed?: number;
  isBack?: boolean;
  stopped?: string;
}

export interface RotateBmcPasswordRequest {
  name?: string;
  mutation?: Mutation;
}

export interface Seed {
  files?: Record<string, string>;
}

export interface Session {
  name?: string;
  member?: string;
  customer?: string;
  createTime?: string;
  lastUseTime?: string;
  expireTime?: string;
  address?: string;
  client?: string;
  current?: boolean;
}

export interface SetClusterLeaseRequest {
  name?: string;
  leaseEnd?: string;
  mutation?: Mutation;
}

export interface SetConsoleHostKeyRequest {
  node?: string;
  hostKeySha256?: string;
  mutation?: Mutation;
}

export interface SetMaintenanceWindowRequest {
  window?: MaintenanceWindow;
  mutation?: Mutation;
}

export interface SetMemberRoleRequest {
  name?: string;
  role?: Role;
  mutation?: Mutation;
}

export interface SetNodePowerRequest {
  name?: string;
  action?: PowerAction;
  mutation?: Mutation;
}

export interface SetTermRequest {
  term?: Term;
  mutation?: Mutation;
}

export interface SigningKey {
  number?: number;
  publicKey?: string;
  signature?: string;
}

export interface Site {
  name?: string;
  title?: string;
  files?: SiteFile[];
  digest?: string;
  appliedBy?: string;
  nodes?: number;
  switches?: number;
  cables?: number;
  notEnrolled?: string[];
  metadata?: Metadata;
}

export interface SiteChange {
  kind?: string;
  name?: string;
  action?: string;
  fields?: SiteFieldChange[];
}

export interface SiteFieldChange {
  field?: string;
  from?: string;
  to?: string;
}

export interface SiteFile {
  name?: string;
  text?: string;
}

export interface SiteFilePart {
  name?: string;
  data?: string;
}

export interface SiteFinding {
  isError?: boolean;
  file?: string;
  line?: number;
  column?: number;
  path?: string;
  what?: string;
  fix?: string;
}

export interface SkuCapacity {
  sku?: string;
  freeNodes?: number;
  bareMetal?: boolean;
  fabrics?: FabricCapacity[];
  pricePerSecond?: string;
  currency?: string;
}

export interface SpreadAgent {
  node?: string;
  heldChunks?: number;
  grants?: number;
  isAlone?: boolean;
  beginTime?: string;
}

export interface SshKey {
  fingerprint?: string;
  publicKey?: string;
  member?: string;
  createTime?: string;
}

export interface StartDiscoveryRequest {
  ranges?: string[];
  ports?: number[];
  targets?: DiscoveryTarget[];
  ssdp?: boolean;
  leases?: boolean;
  logins?: DiscoveryLogin[];
  loginTries?: number;
  mutation?: Mutation;
  factoryCredentials?: boolean;
}

export interface StartUploadRequest {
  imageId?: string;
  sizeBytes?: string;
  sha256?: string;
  format?: ImageFormat;
  minisignSignature?: string;
  mutation?: Mutation;
  osId?: string;
  osVersion?: string;
  kernel?: string;
}

export interface Status {
  code?: number;
  message?: string;
  details?: unknown[];
}

export interface StreamAuditRequest {
  afterPosition?: string;
  untilNow?: boolean;
  filter?: AuditFilter;
}

export interface StreamAuditResponse {
  chain?: AuditChain;
  record?: AuditRecord;
}

export interface StreamEventsRequest {
  afterPosition?: string;
  onlyNew?: boolean;
  target?: string;
  untilNow?: boolean;
  kinds?: string[];
  minSeverity?: EventSeverity;
  sinceTime?: string;
  untilTime?: string;
  newest?: number;
}

export interface SumUsageRequest {
  startTime?: string;
  endTime?: string;
  customer?: string;
  cluster?: string;
}

export interface SumUsageResponse {
  sums?: UsageSum[];
  total?: UsageSum;
  startTime?: string;
  endTime?: string;
}

export interface SummarizeFleetRequest {
  filter?: string;
}

export interface Term {
  name?: string;
  customer?: string;
  sku?: string;
  nodes?: number;
  startTime?: string;
  endTime?: string;
  metadata?: Metadata;
}

export interface TopologyBundle {
  a?: string;
  b?: string;
  cables?: number;
  faultyCables?: number;
  labels?: string[];
}

export interface TopologyMachine {
  name?: string;
  kind?: string;
  unit?: number;
  heightUnits?: number;
}

export interface TopologyPdu {
  name?: string;
  feed?: string;
}

export interface TopologyRack {
  name?: string;
  room?: string;
  units?: number;
  coolingLoop?: string;
  machines?: TopologyMachine[];
  pdus?: TopologyPdu[];
}

export interface TopologySwitch {
  name?: string;
  fabric?: string;
  level?: string;
  pod?: number;
  scalableUnit?: number;
  rail?: number;
  rack?: string;
  ports?: number;
  speed?: string;
  downCables?: number;
  upCables?: number;
  faultyCables?: number;
}

export interface Tpm {
  present?: boolean;
  majorVersion?: number;
  manufacturer?: string;
}

export interface TpmKeys {
  endorsementPublic?: string;
  endorsementCertificate?: string;
  attestationPublic?: string;
}

export interface TraceBootRequest {
  mac?: string;
}

export interface TraceBootResponse {
  mac?: string;
  node?: string;
  stages?: BootStage[];
}

export interface Transition {
  edge?: string;
  fromState?: NodeState;
  toState?: NodeState;
  time?: string;
  reason?: string;
  timeInFormerState?: string;
}

export interface UefiVariables {
  vendors?: string[];
  names?: string[];
}

export interface UnknownMachine {
  mac?: string;
  firstSeen?: string;
  lastSeen?: string;
  architecture?: string;
  relay?: string;
  systemUuid?: string;
  inventory?: Inventory;
}

export interface UpdateNodeFirmwareRequest {
  name?: string;
  mutation?: Mutation;
}

export interface UpdateNodeRequest {
  node?: Node;
  updateMask?: string;
  mutation?: Mutation;
}

export interface Upload {
  name?: string;
  receivedBytes?: string;
  sizeBytes?: string;
}

export interface UsageBreach {
  kind?: string;
  customer?: string;
  cluster?: string;
  goodTime?: string;
  since?: string;
  endTime?: string;
  seconds?: string;
}

export interface UsageRecord {
  node?: string;
  customer?: string;
  cluster?: string;
  sku?: string;
  startTime?: string;
  endTime?: string;
  nodeSeconds?: string;
  open?: boolean;
}

export interface UsageSum {
  customer?: string;
  cluster?: string;
  sku?: string;
  reservedNodeSeconds?: string;
  onDemandNodeSeconds?: string;
  nodeSeconds?: string;
  open?: boolean;
}

export interface VersionSpread {
  name?: string;
  chunks?: number;
  serverChunks?: string;
  serverChunksAgain?: string;
  serverChunksAlone?: string;
  racks?: RackSpread[];
}

export interface WaitOperationRequest {
  name?: string;
  timeout?: string;
}

export interface WatchNodesRequest {
  filter?: string;
}

export interface WatchNodesResponse {
  node?: Node;
  deleted?: boolean;
  synced?: boolean;
}

export interface WeeklyWindow {
  day?: number;
  startMinute?: number;
  minutes?: number;
}

export interface WhoAmIRequest {}

export interface WhoAmIResponse {
  controlPaused?: boolean;
  member?: string;
  role?: Role;
  expireTime?: string;
  customer?: string;
}

export interface WriteImage {
  storeUrls?: string[];
  imageDigest?: string;
  rootDrive?: string;
  seed?: Seed;
  verifyWholeDisk?: boolean;
  memoryBudgetBytes?: string;
  bootEntryLabel?: string;
  peers?: Peers;
}

export interface WriteImageResult {
  driveName?: string;
  driveSerial?: string;
  logicalBytes?: string;
  fetchedBytes?: string;
  writtenBytes?: string;
  zerosSkipped?: boolean;
  verifiedWholeDisk?: boolean;
  durationS?: number;
  resumedDownloads?: number;
  ioUring?: boolean;
  chunksFromServers?: string;
  chunksFromRack?: string;
  chunksFromOtherRacks?: string;
  chunksServed?: string;
}

export interface WriteUploadRequest {
  name?: string;
  offset?: string;
  data?: string;
}

export interface WrongChunk {
  node?: string;
  reason?: string;
}

export interface Methods {
  "AgentService/Register": { request: RegisterRequest; response: RegisterResponse };
  "AuditService/ListAudit": { request: ListAuditRequest; response: ListAuditResponse };
  "AuthService/BeginDeviceLogin": { request: BeginDeviceLoginRequest; response: BeginDeviceLoginResponse };
  "AuthService/CreateToken": { request: CreateTokenRequest; response: CreateTokenResponse };
  "AuthService/DeleteMember": { request: DeleteMemberRequest; response: Empty };
  "AuthService/DeleteToken": { request: DeleteTokenRequest; response: Empty };
  "AuthService/FinishDeviceLogin": { request: FinishDeviceLoginRequest; response: FinishDeviceLoginResponse };
  "AuthService/ListMembers": { request: ListMembersRequest; response: ListMembersResponse };
  "AuthService/ListTokens": { request: ListTokensRequest; response: ListTokensResponse };
  "AuthService/RedeemToken": { request: RedeemTokenRequest; response: Credential };
  "AuthService/RenewCredential": { request: RenewCredentialRequest; response: Credential };
  "AuthService/RevokeMember": { request: RevokeMemberRequest; response: Member };
  "AuthService/SetMemberRole": { request: SetMemberRoleRequest; response: Member };
  "AuthService/WhoAmI": { request: WhoAmIRequest; response: WhoAmIResponse };
  "BmcService/AcCycleNode": { request: AcCycleNodeRequest; response: BmcWork };
  "BmcService/ClearBmcLog": { request: ClearBmcLogRequest; response: BmcWork };
  "BmcService/ListBmcLogEntries": { request: ListBmcLogEntriesRequest; response: ListBmcLogEntriesResponse };
  "BmcService/ReadBmcLog": { request: ReadBmcLogRequest; response: BmcWork };
  "BootService/GetCounters": { request: GetCountersRequest; response: GetCountersResponse };
  "BootService/ListUnknownMachines": { request: ListUnknownMachinesRequest; response: ListUnknownMachinesResponse };
  "BootService/TraceBoot": { request: TraceBootRequest; response: TraceBootResponse };
  "ClusterService/CreateCluster": { request: CreateClusterRequest; response: Operation };
  "ClusterService/DeleteCluster": { request: DeleteClusterRequest; response: Empty };
  "ClusterService/GetCapacity": { request: GetCapacityRequest; response: Capacity };
  "ClusterService/GetCluster": { request: GetClusterRequest; response: Cluster };
  "ClusterService/GetHandoverPack": { request: GetHandoverPackRequest; response: HandoverPack };
  "ClusterService/ListClusters": { request: ListClustersRequest; response: ListClustersResponse };
  "ClusterService/PlanCluster": { request: PlanClusterRequest; response: ClusterPlan };
  "ClusterService/PlanClusterResize": { request: PlanClusterResizeRequest; response: ClusterResizePlan };
  "ClusterService/ReimageCluster": { request: ReimageClusterRequest; response: Operation };
  "ClusterService/ReleaseCluster": { request: ReleaseClusterRequest; response: Operation };
  "ClusterService/ReplaceClusterNode": { request: ReplaceClusterNodeRequest; response: Operation };
  "ClusterService/ResizeCluster": { request: ResizeClusterRequest; response: Operation };
  "ClusterService/ResumeClusterReimage": { request: ResumeClusterReimageRequest; response: Operation };
  "ClusterService/RetryCluster": { request: RetryClusterRequest; response: Operation };
  "ClusterService/RollBackCluster": { request: RollBackClusterRequest; response: Operation };
  "ClusterService/SetClusterLease": { request: SetClusterLeaseRequest; response: Cluster };
  "ConsoleService/AddSshKey": { request: AddSshKeyRequest; response: SshKey };
  "ConsoleService/CreateConsoleToken": { request: CreateConsoleTokenRequest; response: CreateConsoleTokenResponse };
  "ConsoleService/ListConsoleBoots": { request: ListConsoleBootsRequest; response: ListConsoleBootsResponse };
  "ConsoleService/ListSshKeys": { request: ListSshKeysRequest; response: ListSshKeysResponse };
  "ConsoleService/RemoveSshKey": { request: RemoveSshKeyRequest; response: Empty };
  "ConsoleService/SetConsoleHostKey": { request: SetConsoleHostKeyRequest; response: ConsoleHostKey };
  "ControlService/GetControl": { request: GetControlRequest; response: Control };
  "ControlService/ProveDatabase": { request: ProveDatabaseRequest; response: Empty };
  "ControlService/ResumeControl": { request: ResumeControlRequest; response: Control };
  "CredentialService/AddFactoryCredential": { request: AddFactoryCredentialRequest; response: FactoryCredential };
  "CredentialService/ListFactoryCredentials": { request: ListFactoryCredentialsRequest; response: ListFactoryCredentialsResponse };
  "CredentialService/RemoveFactoryCredential": { request: RemoveFactoryCredentialRequest; response: Empty };
  "CredentialService/RotateBmcPassword": { request: RotateBmcPasswordRequest; response: Operation };
  "DiscoveryService/EnrolFindings": { request: EnrolFindingsRequest; response: EnrolFindingsResponse };
  "DiscoveryService/GetDiscovery": { request: GetDiscoveryRequest; response: Discovery };
  "DiscoveryService/ListDiscoveries": { request: ListDiscoveriesRequest; response: ListDiscoveriesResponse };
  "DiscoveryService/ListFindings": { request: ListFindingsRequest; response: ListFindingsResponse };
  "DiscoveryService/StartDiscovery": { request: StartDiscoveryRequest; response: Operation };
  "FirmwareService/AddGoldenFirmware": { request: AddGoldenFirmwareRequest; response: GoldenFirmware };
  "FirmwareService/GetFirmwareReport": { request: GetFirmwareReportRequest; response: FirmwareReport };
  "FirmwareService/GetMaintenanceWindow": { request: GetMaintenanceWindowRequest; response: MaintenanceWindow };
  "FirmwareService/GetNodeFirmware": { request: GetNodeFirmwareRequest; response: NodeFirmware };
  "FirmwareService/ListFirmware": { request: ListFirmwareRequest; response: ListFirmwareResponse };
  "FirmwareService/ListGoldenFirmware": { request: ListGoldenFirmwareRequest; response: ListGoldenFirmwareResponse };
  "FirmwareService/RemoveFirmware": { request: RemoveFirmwareRequest; response: Empty };
  "FirmwareService/RemoveGoldenFirmware": { request: RemoveGoldenFirmwareRequest; response: Empty };
  "FirmwareService/SetMaintenanceWindow": { request: SetMaintenanceWindowRequest; response: MaintenanceWindow };
  "FirmwareService/UpdateNodeFirmware": { request: UpdateNodeFirmwareRequest; response: Operation };
  "ImageService/DeleteImage": { request: DeleteImageRequest; response: Empty };
  "ImageService/FinishUpload": { request: FinishUploadRequest; response: Operation };
  "ImageService/GetImage": { request: GetImageRequest; response: Image };
  "ImageService/GetImageSpread": { request: GetImageSpreadRequest; response: ImageSpread };
  "ImageService/GetUpload": { request: GetUploadRequest; response: Upload };
  "ImageService/ListImages": { request: ListImagesRequest; response: ListImagesResponse };
  "ImageService/StartUpload": { request: StartUploadRequest; response: Upload };
  "MeteringService/DeleteTerm": { request: DeleteTermRequest; response: Empty };
  "MeteringService/ListTerms": { request: ListTermsRequest; response: ListTermsResponse };
  "MeteringService/ListUsage": { request: ListUsageRequest; response: ListUsageResponse };
  "MeteringService/ListUsageBreaches": { request: ListUsageBreachesRequest; response: ListUsageBreachesResponse };
  "MeteringService/SetTerm": { request: SetTermRequest; response: Term };
  "MeteringService/SumUsage": { request: SumUsageRequest; response: SumUsageResponse };
  "NodeService/BatchEnrollNodes": { request: BatchEnrollNodesRequest; response: BatchEnrollNodesResponse };
  "NodeService/BelieveNode": { request: BelieveNodeRequest; response: Node };
  "NodeService/DeleteNode": { request: DeleteNodeRequest; response: Empty };
  "NodeService/DeployNode": { request: DeployNodeRequest; response: Operation };
  "NodeService/EnrollNode": { request: EnrollNodeRequest; response: Operation };
  "NodeService/ExplainNode": { request: ExplainNodeRequest; response: Explanation };
  "NodeService/GetNode": { request: GetNodeRequest; response: Node };
  "NodeService/HoldNode": { request: HoldNodeRequest; response: Node };
  "NodeService/ListEraseCertificates": { request: ListEraseCertificatesRequest; response: ListEraseCertificatesResponse };
  "NodeService/ListEraseChain": { request: ListEraseChainRequest; response: ListEraseChainResponse };
  "NodeService/ListNodes": { request: ListNodesRequest; response: ListNodesResponse };
  "NodeService/ListReports": { request: ListReportsRequest; response: ListReportsResponse };
  "NodeService/QuarantineNode": { request: QuarantineNodeRequest; response: Node };
  "NodeService/ReadmitNode": { request: ReadmitNodeRequest; response: Operation };
  "NodeService/ReimageNode": { request: ReimageNodeRequest; response: Operation };
  "NodeService/ReleaseNode": { request: ReleaseNodeRequest; response: Operation };
  "NodeService/ResumeNode": { request: ResumeNodeRequest; response: Operation };
  "NodeService/RetryNode": { request: RetryNodeRequest; response: Operation };
  "NodeService/SetNodePower": { request: SetNodePowerRequest; response: Operation };
  "NodeService/SummarizeFleet": { request: SummarizeFleetRequest; response: FleetSummary };
  "NodeService/UpdateNode": { request: UpdateNodeRequest; response: Node };
  "OperationService/CancelOperation": { request: CancelOperationRequest; response: Operation };
  "OperationService/GetOperation": { request: GetOperationRequest; response: Operation };
  "OperationService/ListOperations": { request: ListOperationsRequest; response: ListOperationsResponse };
  "OperationService/WaitOperation": { request: WaitOperationRequest; response: Operation };
  "PowerService/ExplainPower": { request: ExplainPowerRequest; response: ExplainPowerResponse };
  "PowerService/GetPowerReport": { request: GetPowerReportRequest; response: GetPowerReportResponse };
  "PowerService/ListAlarms": { request: ListAlarmsRequest; response: ListAlarmsResponse };
  "SessionService/CreateApiKey": { request: CreateApiKeyRequest; response: CreateApiKeyResponse };
  "SessionService/CreateLoginToken": { request: CreateLoginTokenRequest; response: CreateLoginTokenResponse };
  "SessionService/DeleteApiKey": { request: DeleteApiKeyRequest; response: Empty };
  "SessionService/EndSession": { request: EndSessionRequest; response: Empty };
  "SessionService/ListApiKeys": { request: ListApiKeysRequest; response: ListApiKeysResponse };
  "SessionService/ListSessions": { request: ListSessionsRequest; response: ListSessionsResponse };
  "SessionService/OpenSession": { request: OpenSessionRequest; response: OpenSessionResponse };
  "SettingsService/ApplyNodeSettings": { request: ApplyNodeSettingsRequest; response: Operation };
  "SettingsService/GetNodeSettings": { request: GetNodeSettingsRequest; response: NodeSettings };
  "SettingsService/ListSettingsDrift": { request: ListSettingsDriftRequest; response: ListSettingsDriftResponse };
  "SiteService/GetTopology": { request: GetTopologyRequest; response: GetTopologyResponse };
  "SiteService/ListFabricFaults": { request: ListFabricFaultsRequest; response: ListFabricFaultsResponse };
}

export interface Streams {
  "AuditService/StreamAudit": { request: StreamAuditRequest; response: StreamAuditResponse };
  "ConsoleService/ReadConsoleLog": { request: ReadConsoleLogRequest; response: ReadConsoleLogResponse };
  "EventService/StreamEvents": { request: StreamEventsRequest; response: Event };
  "NodeService/WatchNodes": { request: WatchNodesRequest; response: WatchNodesResponse };
  "SiteService/GetSite": { request: GetSiteRequest; response: GetSiteResponse };
}
