package inquiry

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"unicode"

	"github.com/sallyport/sallyport/internal/invisible"
)

const (
	maxMessage = 8 << 10
	maxURL     = 2 << 10
	maxID      = 256
)

// elicitation are the parameters of an elicitation. Form mode has no name: clients
// of the first revision know no modes.
type elicitation struct {
	Mode            string  `json:"mode,omitempty"`
	Message         string  `json:"message"`
	RequestedSchema *schema `json:"requestedSchema,omitempty"`
	URL             string  `json:"url,omitempty"`
	ElicitationID   string  `json:"elicitationId,omitempty"`
}

// parseElicitation does not mind how large the parameters are.
func parseElicitation(params json.RawMessage) (*Request, error) {
	p := read("", params)
	r := &Request{Method: Elicitation, Message: p.text("message", maxMessage)}
	mode := p.text("mode", 32)
	if p.err != nil {
		return nil, p.err
	}
	if strings.TrimSpace(invisible.Strip(r.Message)) == "" {
		return nil, errors.New("message is missing or empty")
	}
	var err error
	switch mode {
	case "", "form":
		// A client that guesses the mode would take this for the other one.
		if p.has("url") || p.has("elicitationId") {
			return nil, errors.New("form mode has no url and no elicitationId")
		}
		r.Fields, err = readForm(p.take("requestedSchema"))
	case "url":
		if p.has("requestedSchema") {
			return nil, errors.New("url mode has no requestedSchema")
		}
		// Revision 2025-11-25 wants an ID, 2026-07-28 has none.
		r.URL, r.ElicitationID = p.text("url", maxURL), p.text("elicitationId", maxID)
		switch {
		case p.err != nil:
			err = p.err
		case !plain(r.ElicitationID):
			err = errors.New("elicitationId has hidden characters")
		default:
			err = checkURL(r.URL)
		}
	default:
		err = errors.New("mode is neither form nor url")
	}
	if err != nil {
		return nil, err
	}
	r.Params = encode(r.elicitation())
	return r, nil
}

func (r *Request) elicitation() elicitation {
	p := elicitation{Message: r.Message, URL: r.URL, ElicitationID: r.ElicitationID}
	if r.URL != "" {
		p.Mode = "url"
	} else {
		p.RequestedSchema = formOf(r.Fields, func(s string) string { return s })
	}
	return p
}

// forClient names the server in the first line of the message: what the server
// writes can only follow it.
func (r *Request) forClient(server string, legacy bool) json.RawMessage {
	p := r.elicitation()
	who := "MCP server " + server + " asks:"
	if r.Ours {
		who = "Sallyport asks, about MCP server " + server + ":"
	}
	p.Message = who + "\n\n" + squeeze(invisible.Escape(r.Message))
	if r.URL == "" {
		fields := r.Fields
		if legacy {
			fields = slices.Clone(fields)
			for i := range fields {
				fields[i].named = fields[i].Type != "array" // which such a client does not know at all
			}
		}
		p.RequestedSchema = formOf(fields, invisible.Escape)
	} else if p.ElicitationID == "" {
		// Clients of revision 2025-11-25 refuse a request without an ID.
		sum := sha256.Sum256([]byte(server + "\x00" + r.URL))
		p.ElicitationID = hex.EncodeToString(sum[:8])
	}
	return encode(p)
}

// squeeze removes blank lines that would push the first line out of sight.
func squeeze(s string) string {
	var lines []string
	for line := range strings.Lines(strings.TrimSpace(s)) {
		line = strings.TrimRightFunc(line, unicode.IsSpace)
		if line != "" || lines[len(lines)-1] != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

// checkURL accepts an address only if a person and every browser read the same
// host in it.
func checkURL(address string) error {
	if address == "" {
		return errors.New("url is missing")
	}
	if !plain(address) || strings.ContainsFunc(address, func(r rune) bool { return unicode.IsSpace(r) || r == '\\' }) {
		return errors.New("url has a character that is not for URLs")
	}
	u, err := url.Parse(address)
	if err != nil || u.Opaque != "" || u.Hostname() == "" {
		return errors.New("url is not an absolute URL")
	}
	if u.User != nil {
		return errors.New("url has user information")
	}
	host := strings.ToLower(u.Hostname())
	ip, err := netip.ParseAddr(host)
	switch isIP := err == nil && ip.Zone() == ""; {
	case !isIP && strings.Trim(host, "abcdefghijklmnopqrstuvwxyz0123456789-._") != "":
		return errors.New("url has a host that is not ASCII: write it in Punycode")
	case u.Scheme == "https":
	case u.Scheme == "http" && (host == "localhost" || isIP && ip.IsLoopback()):
	default:
		return errors.New("url is neither https nor http of a loopback host")
	}
	return nil
}
