package sluice.clients.protonj2;

import java.util.List;
import java.util.Map;
import sluice.clients.Case;
import sluice.clients.Library;

public final class Protonj2 implements Library<AutoCloseable> {
    public AutoCloseable connections() { return () -> {}; }
    public Map<String, Feature<AutoCloseable>> features() { return Map.of(); }
    public void sendTypes(String a, List<Case> c) {}
    public void receiveTypes(String a, int c) {}
    public int soak(String p, long s, long e) { return 0; }
}
