/* A library with the C interface of NVML, for tests. What it returns stands in the file that FAKE_NVML names: a line
   "device key value" each, with the device "-" for the whole node. A key that is missing has the value of a healthy GPU; the
   value "unsupported" stands for NVML_ERROR_NOT_SUPPORTED. Types and numbers are those of nvml.h. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID = 2, UNSUPPORTED = 3, LOST = 15, ENTRIES = 256, GPUS = 16, LINKS = 18 };

static struct { char device[8], key[48], value[96]; } entries[ENTRIES];
static int count;
static int handles[GPUS];

static const char *find(const char *device, const char *key, const char *otherwise) {
  for (int at = 0; at < count; at++)
    if (!strcmp(entries[at].device, device) && !strcmp(entries[at].key, key)) return entries[at].value;
  return otherwise;
}

static const char *of(void *device, const char *key, const char *otherwise) {
  char name[8];
  snprintf(name, sizeof name, "%d", (int)((int *)device - handles));
  return find(name, key, otherwise);
}

static int is_lost(void *device) { return atoi(of(device, "lost", "0")); }

static int text(void *device, const char *key, const char *otherwise, char *out, unsigned length) {
  const char *value = of(device, key, otherwise);
  if (is_lost(device)) return LOST;
  if (!strcmp(value, "unsupported")) return UNSUPPORTED;
  snprintf(out, length, "%s", value);
  return SUCCESS;
}

static int number(void *device, const char *key, const char *otherwise, unsigned long long *out) {
  const char *value = of(device, key, otherwise);
  if (is_lost(device)) return LOST;
  if (!strcmp(value, "unsupported")) return UNSUPPORTED;
  *out = strtoull(value, NULL, 0);
  return SUCCESS;
}

static int small(void *device, const char *key, const char *otherwise, unsigned *out) {
  unsigned long long value = 0;
  int code = number(device, key, otherwise, &value);
  if (code == SUCCESS) *out = (unsigned)value;
  return code;
}

int nvmlInit_v2(void) {
  const char *path = getenv("FAKE_NVML");
  FILE *file = path ? fopen(path, "r") : NULL;
  if (!file) return INVALID;
  while (count < ENTRIES &&
         fscanf(file, "%7s %47s %95[^\n]", entries[count].device, entries[count].key, entries[count].value) == 3)
    count++;
  fclose(file);
  /* A driver that hangs. */
  while (atoi(find("-", "hang", "0"))) pause();
  return atoi(find("-", "init", "0"));
}

const char *nvmlErrorString(int code) {
  switch (code) {
  case UNSUPPORTED: return "Not Supported";
  case 9: return "Driver Not Loaded";
  case LOST: return "GPU is lost";
  case 18: return "Driver/library version mismatch";
  default: return "Unknown Error";
  }
}

int nvmlSystemGetDriverVersion(char *out, unsigned length) {
  snprintf(out, length, "%s", find("-", "driver", "570.86.15"));
  return SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned *out) {
  *out = (unsigned)atoi(find("-", "count", "2"));
  return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **out) {
  if (index >= GPUS) return INVALID;
  *out = &handles[index];
  return atoi(of(*out, "handle", "0"));
}

int nvmlDeviceGetName(void *device, char *out, unsigned length) {
  return text(device, "name", "NVIDIA H100 80GB HBM3", out, length);
}

int nvmlDeviceGetSerial(void *device, char *out, unsigned length) {
  char serial[16];
  snprintf(serial, sizeof serial, "165052300000%d", (int)((int *)device - handles));
  return text(device, "serial", serial, out, length);
}

int nvmlDeviceGetUUID(void *device, char *out, unsigned length) {
  return text(device, "uuid", "GPU-5e2f4f3c-0000-0000-0000-000000000000", out, length);
}

int nvmlDeviceGetVbiosVersion(void *device, char *out, unsigned length) {
  return text(device, "vbios", "96.00.74.00.01", out, length);
}

struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char name[32]; };

int nvmlDeviceGetPciInfo_v3(void *device, struct pci *out) {
  memset(out, 0, sizeof *out);
  unsigned domain = 0, bus = 0, slot = 0;
  const char *otherwise = device == handles ? "0000:1b:00" : "0000:43:00";
  sscanf(of(device, "pci", otherwise), "%x:%x:%x", &domain, &bus, &slot);
  out->domain = domain;
  out->bus = bus;
  out->device = slot;
  return SUCCESS;
}

int nvmlDeviceGetPerformanceState(void *device, unsigned *out) { return small(device, "pstate", "0", out); }

int nvmlDeviceGetTemperature(void *device, unsigned sensor, unsigned *out) {
  return sensor ? INVALID : small(device, "temperature", "34", out);
}

int nvmlDeviceGetPowerManagementLimit(void *device, unsigned *out) { return small(device, "power_limit", "700000", out); }

int nvmlDeviceGetPowerManagementDefaultLimit(void *device, unsigned *out) {
  return small(device, "power_default", "700000", out);
}

int nvmlDeviceGetPcieReplayCounter(void *device, unsigned *out) { return small(device, "replays", "0", out); }

int nvmlDeviceGetTotalEccErrors(void *device, unsigned kind, unsigned counter, unsigned long long *out) {
  if (counter) return INVALID;
  return number(device, kind ? "ecc_uncorrected" : "ecc_corrected", "0", out);
}

int nvmlDeviceGetRemappedRows(void *device, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
                              unsigned *failed) {
  int code = small(device, "remap_corrected", "0", corrected);
  small(device, "remap_uncorrected", "0", uncorrected);
  small(device, "remap_pending", "0", pending);
  small(device, "remap_failed", "0", failed);
  return code;
}

/* Only the former name, as in a driver before 535. */
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *out) {
  return number(device, "clock_reasons", "0", out);
}

int nvmlDeviceGetNvLinkState(void *device, unsigned link, unsigned *out) {
  char key[16];
  if (link >= (unsigned)atoi(of(device, "links", "18"))) return INVALID;
  snprintf(key, sizeof key, "link_%u", link);
  return small(device, key, "1", out);
}

int nvmlDeviceGetNvLinkErrorCounter(void *device, unsigned link, unsigned counter, unsigned long long *out) {
  char key[16];
  if (counter > 3) return INVALID;
  snprintf(key, sizeof key, "errors_%u", link);
  return number(device, key, "0", out);
}
