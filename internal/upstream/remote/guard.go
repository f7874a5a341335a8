package remote

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// refusal is an ErrRefused with its reason.
type refusal struct{ why string }

func (r *refusal) Error() string { return ErrRefused.Error() + ": " + r.why }
func (r *refusal) Unwrap() error { return ErrRefused }

// Rule returns the rule that forbids what was refused, for packages that do not
// import this one.
func (r *refusal) Rule() string { return r.why }

func refuse(format string, args ...any) error { return &refusal{fmt.Sprintf(format, args...)} }

// metadataNames are the names of clouds' metadata services, which give
// credentials to every program on a machine. Their addresses are refused as
// well.
var metadataNames = []string{
	"metadata", "metadata.google.internal", "metadata.goog", "instance-data", "instance-data.ec2.internal",
}

// metadataAddresses are the metadata services that are not link-local.
var metadataAddresses = []netip.Prefix{
	netip.MustParsePrefix("fd00:ec2::/32"),      // AWS: 254 the instance's, 23 EKS Pod Identity
	netip.MustParsePrefix("fd20:ce::254/128"),   // Google
	netip.MustParsePrefix("168.63.129.16/32"),   // Azure
	netip.MustParsePrefix("100.100.100.200/32"), // Alibaba
	netip.MustParsePrefix("192.0.0.192/32"),     // Oracle
}

// nowhere lists addresses that no server has.
var nowhere = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),   // this host, on some systems
	netip.MustParsePrefix("240.0.0.0/4"), // reserved, with broadcast
	netip.MustParsePrefix("100::/64"),    // discarded
}

// embedded is a prefix of IPv6 addresses that contain an IPv4 address.
type embedded struct {
	prefix netip.Prefix
	at     int
	mask   byte // XORed with the bytes
}

// address returns the IPv4 address in an IPv6 address.
func (e embedded) address(ip netip.Addr) netip.Addr {
	bytes := ip.As16()
	var four [4]byte
	for i := range four {
		four[i] = bytes[e.at+i] ^ e.mask
	}
	return netip.AddrFrom4(four)
}

var embedding = []embedded{
	{netip.MustParsePrefix("::/96"), 12, 0},           // IPv4-compatible
	{netip.MustParsePrefix("::ffff:0:0:0/96"), 12, 0}, // IPv4-translated
	{netip.MustParsePrefix("64:ff9b::/96"), 12, 0},    // NAT64
	{netip.MustParsePrefix("64:ff9b:1::/48"), 12, 0},  // NAT64 of one's own, in its usual form
	{netip.MustParsePrefix("2002::/16"), 2, 0},        // 6to4
	{netip.MustParsePrefix("2001::/32"), 12, 0xff},    // Teredo
}

// checkAddress returns an error if no server may have this address.
func checkAddress(ip netip.Addr) error {
	ip = ip.WithZone("").Unmap()
	what := ""
	switch {
	case !ip.IsValid():
		return refuse("not an IP address")
	case ip.IsLoopback():
		return nil
	case ip.IsUnspecified():
		what = "it is the unspecified address"
	case ip.IsLinkLocalUnicast():
		what = "it is link-local, where clouds have their metadata services"
	case ip.IsMulticast():
		what = "it is a multicast address"
	}
	for _, p := range metadataAddresses {
		if p.Contains(ip) {
			what = "it is a cloud's metadata service"
		}
	}
	for _, p := range nowhere {
		if p.Contains(ip) {
			what = "no server has such an address"
		}
	}
	if what != "" {
		return refuse("address %s: %s", ip, what)
	}
	if ip.Is6() {
		for _, e := range embedding {
			if !e.prefix.Contains(ip) {
				continue
			}
			if err := checkAddress(e.address(ip)); err != nil {
				return refuse("address %s, which holds another: %v", ip, err)
			}
		}
	}
	return nil
}

// reach is how near an address is.
type reach int

const (
	public  reach = iota
	private       // a private network, or a provider's (RFC 1918, 4193, 6598)
	machine       // this machine
)

// privateNetworks are those that netip does not know.
var privateNetworks = []netip.Prefix{
	netip.MustParsePrefix("100.64.0.0/10"), // carrier-grade NAT
	netip.MustParsePrefix("fec0::/10"),     // site-local, from before unique local addresses
}

// reachOf returns the reach of an address, or that of the IPv4 address in it.
func reachOf(ip netip.Addr) reach {
	ip = ip.WithZone("").Unmap()
	if ip.IsLoopback() {
		return machine
	}
	if ip.IsPrivate() || slices.ContainsFunc(privateNetworks, func(p netip.Prefix) bool { return p.Contains(ip) }) {
		return private
	}
	at := public
	for _, e := range embedding {
		if e.prefix.Contains(ip) {
			at = max(at, reachOf(e.address(ip)))
		}
	}
	return at
}

// checkHost checks a URL's host as far as possible before it is resolved.
func checkHost(host string) error {
	name := strings.ToLower(strings.TrimSuffix(host, "."))
	for _, n := range metadataNames {
		if name == n {
			return refuse("host %s: it is a cloud's metadata service", name)
		}
	}
	if ip, err := netip.ParseAddr(name); err == nil {
		return checkAddress(ip)
	}
	return nil
}

// isLoopback reports whether a host is this machine by its name alone.
func isLoopback(host string) bool {
	name := strings.ToLower(strings.TrimSuffix(host, "."))
	if name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return true
	}
	ip, err := netip.ParseAddr(name)
	return err == nil && ip.Unmap().IsLoopback()
}
