package settings

import (
	"math"
	"time"
)

// The values of audit.mode.
const (
	AuditOff    = "off"
	AuditOn     = "on"
	AuditStrict = "strict"
)

// Audit configures the log of what was done and who allowed it.
type Audit struct {
	Mode       string
	Code       string // complete or hash
	Arguments  string // complete, hash or omit
	RotateSize int64
	RotateAge  time.Duration
	MaxDisk    int64
	Keep       time.Duration // 0: forever
}

func declareAudit(a *Audit) []*setting {
	const day = 24 * time.Hour
	const more = " Variables and flags can only ask for more than the file, or the default."
	kept := func() int64 {
		if a.Keep == 0 {
			return math.MaxInt64
		}
		return int64(a.Keep)
	}
	return []*setting{
		{key: "audit.mode", value: choice(&a.Mode, AuditOff, AuditOn, AuditStrict), initial: AuditOn, strength: rank(&a.Mode, AuditOff, AuditOn, AuditStrict),
			help: "`on`: what happens is recorded within a second, and a log that cannot be written is reported and stops nothing. `strict`: code runs and a call goes out only when the decision that allows it is on disk. `off`: nothing is recorded." + more},
		{key: "audit.code", value: choice(&a.Code, "complete", "hash"), initial: "hash", strength: rank(&a.Code, "hash", "complete"),
			help: "How the log has the code of executions: the code itself, or its SHA-256 hash and its size." + more},
		{key: "audit.arguments", value: choice(&a.Arguments, "complete", "hash", "omit"), initial: "hash", strength: rank(&a.Arguments, "omit", "hash", "complete"),
			help: "How the log has the arguments of calls, and what a person was shown of them: as they are, without the secrets that Sallyport knows; their SHA-256 hash and their size; or only their size. A rule for a tool can say otherwise. A hash of arguments that can be guessed says what they are." + more},
		{key: "audit.rotateSize", value: size(&a.RotateSize, 64<<10, gib), initial: "16m",
			help: "Size at which a new file is begun."},
		{key: "audit.rotateAge", value: duration(&a.RotateAge, time.Minute, 365*day), initial: "24h",
			help: "Age at which a new file is begun."},
		{key: "audit.maxDisk", value: size(&a.MaxDisk, mib, 1024*gib), initial: "1g", strength: func() int64 { return a.MaxDisk },
			help: "Disk space of all files together. The oldest are removed." + more},
		{key: "audit.keep", value: duration(&a.Keep, day, 3650*day).or("forever", 0), initial: "2160h", strength: kept,
			help: "How long files are kept after their last record." + more},
	}
}
