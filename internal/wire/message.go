package wire

import (
	"encoding/json"

	"github.com/sallyport/sallyport/internal/toolbox/tool"
)

// Protocol is the version that "ready" carries. Host and guest travel in one
// executable, so there is nothing to negotiate: another number is an error.
const Protocol = 1

// Types of control frames.
const (
	TypeExec     = "exec"
	TypeReply    = "reply"
	TypeShutdown = "shutdown"
	TypeReady    = "ready"
	TypeCall     = "call"
	TypeBehind   = "behind"
	TypeCancel   = "cancel"
	TypeDone     = "done"
)

// Exec asks the guest to run code. Grants names the servers that this one
// execution may use. ID and Nonce are set by whoever numbers the executions.
type Exec struct {
	ID         uint64       `json:"id"`
	Nonce      string       `json:"nonce"`
	Code       string       `json:"code"`
	Filename   string       `json:"filename,omitempty"` // shown in tracebacks; "<cell ID>" when empty
	Script     bool         `json:"script,omitempty"`   // __name__ is "__main__", and no value is echoed
	Args       []string     `json:"args,omitempty"`     // sys.argv[1:]
	Stdin      bool         `json:"stdin,omitempty"`    // [MethodStdin] has something to read
	HTML       bool         `json:"html,omitempty"`     // who reads the result sees pages: tables are written as such too
	Grants     []string     `json:"grants,omitempty"`
	Define     []Server     `json:"define,omitempty"`
	Discovered []ServerInfo `json:"discovered,omitzero"` // nil: as before
	Reseed     string       `json:"reseed,omitempty"`    // hexadecimal; fresh randomness for a guest that others were copied from too
	Packages   []string     `json:"packages,omitempty"`  // archives that an earlier sandbox of the session had, oldest first
	Task       string       `json:"task,omitempty"`      // work of the host's own, in place of Code
}

// Server is the definition of a server that the guest makes a module of.
type Server struct {
	// Version changes with the definition. The host compares it, and does not
	// send it.
	Version     string `json:"-"`
	Name        string `json:"name"`
	Alias       string `json:"alias"` // an identifier, which several servers may have
	Description string `json:"description,omitempty"`
	Cwd         string `json:"cwd,omitempty"`
	// Denied has names of tools that code may not use. No alias takes one.
	Denied []string `json:"denied,omitempty"`
	// Tools are as code may read them, without what a sandbox does not need
	// (the title and hints).
	Tools []tool.Tool `json:"tools"`
}

// ServerInfo names a server that exists, loaded or not.
type ServerInfo struct {
	Name        string `json:"name"`
	Alias       string `json:"alias,omitempty"`
	Description string `json:"description,omitempty"`
}

// Ready is the guest's first frame.
type Ready struct {
	Protocol int    `json:"protocol"`
	Runtime  string `json:"runtime"` // the language and its version, for people
}

// Methods of a [Call]. A host answers one that it does not know with
// [KindUnsupported], and the guest then does without.
const (
	// MethodCallTool: params {"server","tool","arguments","fresh"?}; the result is
	// the server's raw CallToolResult. fresh is true where that of an earlier call,
	// which rules may allow, will not do.
	MethodCallTool = "call_tool"
	// MethodListTools: params {"server"}; the result is an array of the
	// server's raw tools.
	MethodListTools = "list_tools"
	// MethodLoadServer: params {"name"}; the result is a [Server], granted
	// from then on to the end of the execution.
	MethodLoadServer = "load_server"
	// MethodQueryToolDocs: params {"server","tool"?,"detail"}; the result is
	// an array of documents.
	MethodQueryToolDocs = "query_tool_docs"
	// MethodSearchToolDocs: params {"query","limit","detail"}; the result is
	// an array of documents.
	MethodSearchToolDocs = "search_tool_docs"
	// MethodServers: no params; the result is an array of {"name",
	// "description","problem"?}: every server that may be granted, with why its
	// tools are not known, where that is so.
	MethodServers = "servers"
	// MethodSessionFacts: params {}; the result is [SessionFacts].
	MethodSessionFacts = "session_facts"
	// MethodPackageFacts: params {"module","package"}; the result is [PackageFacts]. The
	// package is empty where code does not know what installs the module.
	MethodPackageFacts = "package_facts"
	// MethodFolderFacts: params {"path"}, which code has used; the result is [FolderFacts].
	MethodFolderFacts = "folder_facts"
	// MethodCancel: params {"session"}; the result is whether code ran in the
	// background of that session, which is then cancelled.
	MethodCancel = "cancel"
	// MethodOutput: params {"execution","stream"}; the result is a string, what an
	// earlier execution of the session wrote: that many executions ago if
	// execution is negative, else the one with that number. The stream is "stdout",
	// "stderr" or "" for both in their order.
	MethodOutput = "output"
	// MethodListResources, MethodListResourceTemplates and MethodListPrompts:
	// params {"server"}; the result is an array of what the server has, all
	// pages of it, each as the server sent it.
	MethodListResources         = "list_resources"
	MethodListResourceTemplates = "list_resource_templates"
	MethodListPrompts           = "list_prompts"
	// MethodReadResource: params {"server","uri"}; the result is the server's
	// raw ReadResourceResult.
	MethodReadResource = "read_resource"
	// MethodGetPrompt: params {"server","name","arguments"}; the result is the
	// server's raw GetPromptResult.
	MethodGetPrompt = "get_prompt"
	// MethodFindServers: params {"query"}; the result is an array of
	// {"name","alias"?,"description"?,"state","how"}.
	MethodFindServers = "find_servers"
	// MethodRequestServer: params {"name","definition"}; the result is a
	// [Server], granted from now on. [KindDenied]: it was noted for the user.
	MethodRequestServer = "request_server"

	// MethodMemoryGet: params {"key","info"}; the result is null, or {"key",
	// "metadata","created_at","updated_at","version"} and, unless info is
	// true, "value".
	MethodMemoryGet = "memory_get"
	// MethodMemoryPut: params {"key","value","metadata"?,"version"?}; with a
	// version (empty: nothing is there) only in place of that one, keeping
	// its metadata. The result is true, or false for another version.
	MethodMemoryPut = "memory_put"
	// MethodMemoryDelete: params {"key"}; the result is whether it was there.
	MethodMemoryDelete = "memory_delete"
	// MethodMemoryList: the result is an array of {"key","metadata",
	// "created_at","updated_at"} or {"key","error"}.
	MethodMemoryList = "memory_list"
	// MethodToolSave: params [SavedTool]; the result is the version's number.
	MethodToolSave = "tool_save"
	// MethodToolLoad: params {"name"}; the result is null, or {"name",
	// "version","servers","source"}.
	MethodToolLoad = "tool_load"
	// MethodToolNames: the result is an array of the saved tools' names.
	MethodToolNames = "tool_names"
)

// MethodStdin reads the standard input of an execution whose Exec says that there
// is one: params [StdinWants]; the result is [StdinData], or null at the end.
// The host reads no more than what is asked for, when it is asked for.
const MethodStdin = "stdin"

// MaxStdin bounds what one call reads of standard input.
const MaxStdin = 64 << 10

// StdinWants are the params of MethodStdin.
type StdinWants struct {
	Most int `json:"most"` // bytes; at most [MaxStdin]
	// Ahead says that no code waits for it now: it is for a pipe that the code
	// or its children may read.
	Ahead bool `json:"ahead,omitempty"`
}

// StdinData is a piece of standard input, never empty.
type StdinData struct {
	Data []byte `json:"data"`
}

// Large says of a call's method that its result can have tens of megabytes
// without the code having sent anything of that size.
func Large(method string) bool {
	switch method {
	case MethodListTools, MethodLoadServer, MethodRequestServer, MethodQueryToolDocs, MethodSearchToolDocs,
		MethodListResources, MethodListResourceTemplates, MethodListPrompts, MethodOutput,
		MethodMemoryGet, MethodMemoryList, MethodToolLoad, MethodToolNames, MethodPackagePart:
		return true
	}
	return false
}

// Tasks of an [Exec], and the methods of the calls that serve them. No other
// execution has these.
const (
	// TaskTakeOut sends the files of /workspace by MethodTaskFile: params
	// [TaskFile]; the result is null.
	TaskTakeOut    = "take_out"
	MethodTaskFile = "task_file"
	// TaskPutIn makes files in /workspace that it asks for by MethodTaskNext:
	// the result is a [TaskFile], or null when there are no more.
	TaskPutIn      = "put_in"
	MethodTaskNext = "task_next"
	// TaskTakeNamed asks for paths by MethodTaskNext, of which only
	// TaskFile.Path counts, and sends those files by MethodTaskFile.
	TaskTakeNamed = "take_named"
	// TaskLetGo closes files of mounted folders that are gone from them: see
	// sandbox.ErrHeld.
	TaskLetGo = "let_go"
)

// TaskFile is a file, a part of one or a directory that a task moves.
type TaskFile struct {
	Path      string `json:"path"` // relative
	Mode      uint32 `json:"mode,omitempty"`
	Directory bool   `json:"directory,omitempty"`
	Data      []byte `json:"data,omitempty"`
	More      bool   `json:"more,omitempty"` // of this file, in the next call
	// LeftOut says why a file is not sent.
	LeftOut string `json:"leftOut,omitempty"`
}

// Sizes of the parts in which a task moves a file.
const (
	TaskPartSize = 1 << 20 // to the guest
	// MinTaskPart is the least size from the guest, except for a file's last
	// part: many small parts would cost the host more than the guest.
	MinTaskPart = 16 << 10
)

// SessionFacts are the limits that hold for the code of a session, and its
// environment. Zero is unlimited, or not known.
type SessionFacts struct {
	Timeout    float64 `json:"timeout,omitempty"` // of one execution's own time, unless it asks for another; seconds
	MaxTimeout float64 `json:"maxTimeout,omitempty"`
	Memory     int64   `json:"memory,omitempty"` // bytes
	Workspace  int64   `json:"workspace,omitempty"`
	Output     int64   `json:"output,omitempty"` // of one execution
	Processes  int     `json:"processes,omitempty"`
	// Environment is the session's; Environments are all that a new session can have.
	// Both are empty where there is no choice.
	Environment  string   `json:"environment,omitempty"`
	Environments []string `json:"environments,omitempty"`
	// Packages says whether code may add packages: "any", "listed" or "ask"; empty:
	// it may not.
	Packages string `json:"packages,omitempty"`
	// Folders are those of the user that the sandbox sees, each a place and in words
	// what code may do there.
	Folders []string `json:"folders,omitempty"`
}

// FolderFacts say what a path means to a sandbox that sees folders of the host. They
// name no path of the host.
type FolderFacts struct {
	// Place is the path in the sandbox, for a path of the host in one of the folders.
	Place string `json:"place,omitempty"`
	// Folder is the folder that the path lies in, by its place; empty: none.
	Folder   string   `json:"folder,omitempty"`
	ReadOnly bool     `json:"readOnly,omitempty"`
	Folders  []string `json:"folders,omitempty"` // see [SessionFacts]
}

// PackageFacts say how code can get a package.
type PackageFacts struct {
	Environments []string `json:"environments,omitempty"` // others that have it
	This         string   `json:"this,omitempty"`         // the session's environment, if it has a name
	Command      bool     `json:"command,omitempty"`      // a person ran the code, with 'sallyport run'
	// Install says what policy says of installing it: "any", "listed", "ask" or "none".
	Install string `json:"install"`
	// Listed are the requirements that policy lists.
	Listed []string `json:"listed,omitempty"`
}

// Call asks something of the host on behalf of the code of execution Run.
// Params is whatever the guest sent: hostile until checked.
type Call struct {
	ID     uint64          `json:"id"`
	Run    uint64          `json:"run"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	// Behind returns how many calls wait in the sandbox, as the last [Behind] of its
	// execution said. The host sets it.
	Behind func() int `json:"-"`
}

// SavedTool is a function that code saves for later sessions, as a module's
// text.
type SavedTool struct {
	Name      string          `json:"name"`
	Source    string          `json:"source"`
	Signature string          `json:"signature"`
	Doc       string          `json:"doc"`
	Async     bool            `json:"async"`
	Servers   []string        `json:"servers"` // by the names that follow mcp_
	Python    string          `json:"python"`
	Schema    json.RawMessage `json:"schema,omitempty"` // of the arguments
}

// Behind says how many calls of an execution wait in the sandbox until others are
// answered.
type Behind struct {
	Run   uint64 `json:"run"`
	Calls int    `json:"calls"`
}

// Cancel says that no caller waits for the reply to call ID any more.
type Cancel struct {
	ID uint64 `json:"id"`
}

// Status says how an execution ended.
type Status string

// The statuses of [Done].
const (
	StatusOK          Status = "ok"
	StatusError       Status = "error"
	StatusExit        Status = "exit"
	StatusInterrupted Status = "interrupted"
)

// Done ends an execution. All of it is the guest's word.
type Done struct {
	ID                 uint64     `json:"id"`
	Status             Status     `json:"status"`
	ExitCode           int        `json:"exitCode"`
	Artifacts          []Artifact `json:"artifacts,omitempty"`
	ArtifactsTruncated bool       `json:"artifactsTruncated,omitempty"` // there were more
	Background         Background `json:"background,omitzero"`
	Running            []string   `json:"running,omitempty"` // some of it, in words
	Error              *Exception `json:"error,omitempty"`   // with StatusError, where the guest could tell
	// Drained says that no nonce follows: everything that the execution wrote has been
	// sent before, but for Stdout, which is the end of its standard output.
	Drained bool   `json:"drained,omitempty"`
	Stdout  string `json:"stdout,omitempty"`
}

// Exception is what ended an execution: the name of its class, and the first
// line of its message.
type Exception struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

// Artifact is a file that an execution left new or changed in /workspace. The
// path is relative, and as hostile as the guest.
type Artifact struct {
	Path string `json:"path"`
	Size int64  `json:"size"`
	// About says what a picture shows.
	About string `json:"about,omitempty"`
}

// Background counts what goes on running after an execution.
type Background struct {
	Threads  int `json:"threads,omitempty"`
	Tasks    int `json:"tasks,omitempty"`
	Children int `json:"children,omitempty"`
}

// Kinds of a [CallError].
const (
	KindInvalid     = "invalid"        // the request is malformed
	KindDenied      = "denied"         // policy, or the server is not granted
	KindNotFound    = "not_found"      // no such server or tool
	KindUnsupported = "unsupported"    // the host does not know the method
	KindServer      = "server"         // the server answered with a protocol error
	KindUnavailable = "unavailable"    // the server could not be reached or died
	KindTimeout     = "timeout"        // the server did not answer in time
	KindLimit       = "limit_exceeded" // too many calls, or too large a message
	KindCancelled   = "cancelled"      // the execution ended
	KindInternal    = "internal"       // the host failed
)

// CallError is the failure of a call, as it travels. The message reaches the
// agent: it names nothing on the host that the agent may not know.
type CallError struct {
	Kind    string `json:"kind"`
	Message string `json:"message"`
}

func (e *CallError) Error() string { return e.Message }
