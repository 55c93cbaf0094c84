import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.rmi.registry.LocateRegistry;
import java.rmi.registry.Registry;
import java.rmi.server.RMIClientSocketFactory;
import java.rmi.server.RMIServerSocketFactory;
import java.security.KeyStore;
import java.security.MessageDigest;
import java.util.Base64;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import javax.management.Attribute;
import javax.management.AttributeList;
import javax.management.AttributeNotFoundException;
import javax.management.DynamicMBean;
import javax.management.MBeanAttributeInfo;
import javax.management.MBeanInfo;
import javax.management.MBeanServer;
import javax.management.MBeanServerFactory;
import javax.management.ObjectName;
import javax.management.remote.JMXAuthenticator;
import javax.management.remote.JMXConnectorServer;
import javax.management.remote.JMXPrincipal;
import javax.management.remote.JMXServiceURL;
import javax.management.remote.MBeanServerForwarder;
import javax.management.remote.rmi.RMIConnectorServer;
import javax.management.remote.rmi.RMIJRMPServerImpl;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLSocketFactory;
import javax.rmi.ssl.SslRMIClientSocketFactory;
import javax.security.auth.Subject;

/**
 * Serves the statistics of a server to JMX clients over RMI (docs/monitoring.md, "JMX").
 *
 * <p>The server starts this file with the JDK's single-file launcher, and writes lines to its standard input: first how to
 * serve, then the MBeans with their attributes, again and again. Parts of a line are separated by tabs; "end" ends what
 * belongs together. This program ends with its input, so it never outlives the server. Secrets come by the input as well,
 * because arguments are visible to everybody on the machine.
 *
 * <p>Clients may read MBeans and nothing else: making one (javax.management.loading.MLet, say) would run code of theirs.
 */
public final class JmxBridge {
    private static final Set<String> ALLOWED =
            Set.of(
                    "getAttribute",
                    "getAttributes",
                    "getClassLoader",
                    "getClassLoaderFor",
                    "getClassLoaderRepository",
                    "getDefaultDomain",
                    "getDomains",
                    "getMBeanCount",
                    "getMBeanInfo",
                    "getObjectInstance",
                    "isInstanceOf",
                    "isRegistered",
                    "queryMBeans",
                    "queryNames",
                    "addNotificationListener",
                    "removeNotificationListener");

    private JmxBridge() {}

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Map<String, String[]> settings = new HashMap<>();
        for (String[] line = next(input); !line[0].equals("end"); line = next(input)) {
            settings.put(line[0], line);
        }
        MBeanServer beans = MBeanServerFactory.newMBeanServer("mdserver");
        // The threads of RMI would keep a program running that no longer takes the statistics.
        try {
            run(settings, beans, input);
        } catch (Throwable error) {
            error.printStackTrace();
        } finally {
            Runtime.getRuntime().halt(1);
        }
    }

    /** Serves until the input ends, which ends the program; returns if it cannot serve. */
    private static void run(Map<String, String[]> settings, MBeanServer beans, BufferedReader input)
            throws Exception {
        try {
            System.out.println("ready\t" + serve(settings, beans));
        } catch (Exception error) {
            System.out.println("failed\t" + error.getMessage());
            return;
        }
        Statistics statistics = new Statistics(beans);
        while (true) {
            statistics.take(input);
        }
    }

    /** Returns the parts of the next line; ends the program at the end of the input. */
    private static String[] next(BufferedReader input) throws IOException {
        String line = input.readLine();
        if (line == null) {
            System.exit(0);
        }
        return line.split("\t", -1);
    }

    /** Starts serving, and returns the port. */
    private static int serve(Map<String, String[]> settings, MBeanServer beans) throws Exception {
        String host = settings.get("listen")[1];
        int wanted = Integer.parseInt(settings.get("listen")[2]);
        String named = settings.get("listen")[3];
        // Clients are told this name when they look the server up.
        System.setProperty("java.rmi.server.hostname", named);
        // Others on this machine may ask the registry, and must not put an object of theirs into it.
        System.setProperty("sun.rmi.registry.registryFilter", "!*");
        SSLContext tls = settings.containsKey("tls") ? context(settings.get("tls")) : null;
        int port = wanted != 0 ? wanted : freePort(host);
        RMIClientSocketFactory dial = tls == null ? null : new SslRMIClientSocketFactory();
        RMIServerSocketFactory listen = new Listening(InetAddress.getByName(host), tls);
        Map<String, Object> environment = new HashMap<>();
        if (settings.containsKey("user")) {
            String[] user = settings.get("user");
            environment.put(JMXConnectorServer.AUTHENTICATOR, authenticator(user[1], user[2]));
        }
        // Without a user clients can send credentials as well, and these are read before anything is checked.
        environment.put(RMIConnectorServer.CREDENTIALS_FILTER_PATTERN, "java.lang.String;!*");
        environment.put(
                RMIConnectorServer.SERIAL_FILTER_PATTERN,
                "maxdepth=20;maxarray=10000;java.base/*;java.rmi/*;java.management/*;java.management.rmi/*;!*");
        RMIJRMPServerImpl implementation = new RMIJRMPServerImpl(port, dial, listen, environment);
        JMXServiceURL url = new JMXServiceURL("rmi", named, port);
        RMIConnectorServer server = new RMIConnectorServer(url, environment, implementation, beans);
        server.setMBeanServerForwarder(readOnly());
        server.start();
        Registry registry = LocateRegistry.createRegistry(port, dial, listen);
        registry.rebind("jmxrmi", implementation.toStub());
        return port;
    }

    private static int freePort(String host) throws IOException {
        try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getByName(host))) {
            return socket.getLocalPort();
        }
    }

    private static SSLContext context(String[] line) throws Exception {
        char[] password = line[2].toCharArray();
        KeyStore store = KeyStore.getInstance("PKCS12");
        store.load(new ByteArrayInputStream(Base64.getDecoder().decode(line[1])), password);
        KeyManagerFactory keys = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
        keys.init(store, password);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(keys.getKeyManagers(), null, null);
        return context;
    }

    private static JMXAuthenticator authenticator(String user, String password) {
        byte[] expected = (user + "\n" + password).getBytes(StandardCharsets.UTF_8);
        return credentials -> {
            if (credentials instanceof String[] given && given.length == 2) {
                byte[] text = (given[0] + "\n" + given[1]).getBytes(StandardCharsets.UTF_8);
                if (MessageDigest.isEqual(text, expected)) {
                    return new Subject(true, Set.of(new JMXPrincipal(user)), Set.of(), Set.of());
                }
            }
            throw new SecurityException("The user or the password is wrong.");
        };
    }

    /** Returns a forwarder that carries reading out, and refuses everything else. */
    private static MBeanServerForwarder readOnly() {
        MBeanServer[] beans = new MBeanServer[1];
        return (MBeanServerForwarder)
                Proxy.newProxyInstance(
                        JmxBridge.class.getClassLoader(),
                        new Class<?>[] {MBeanServerForwarder.class},
                        (proxy, method, values) -> {
                            if (method.getName().equals("setMBeanServer")) {
                                beans[0] = (MBeanServer) values[0];
                                return null;
                            }
                            if (method.getName().equals("getMBeanServer")) {
                                return beans[0];
                            }
                            if (!ALLOWED.contains(method.getName())) {
                                throw new SecurityException("The statistics can only be read.");
                            }
                            try {
                                return method.invoke(beans[0], values);
                            } catch (InvocationTargetException error) {
                                throw error.getCause();
                            }
                        });
    }

    /** Listens on one address, with TLS or without. Registry and server share a port through it. */
    private static final class Listening implements RMIServerSocketFactory {
        private final InetAddress address;
        private final SSLContext tls;

        Listening(InetAddress address, SSLContext tls) {
            this.address = address;
            this.tls = tls;
        }

        @Override
        public ServerSocket createServerSocket(int port) throws IOException {
            if (tls == null) {
                return new ServerSocket(port, 50, address);
            }
            SSLSocketFactory sockets = tls.getSocketFactory();
            return new ServerSocket(port, 50, address) {
                @Override
                public Socket accept() throws IOException {
                    Socket plain = super.accept();
                    String peer = plain.getInetAddress().getHostAddress();
                    var socket = (javax.net.ssl.SSLSocket) sockets.createSocket(plain, peer, plain.getPort(), true);
                    socket.setUseClientMode(false);
                    return socket;
                }
            };
        }
    }

    /** The MBeans as the server told them last. */
    private static final class Statistics {
        private final MBeanServer server;
        private final Map<String, Bean> beans = new HashMap<>();

        Statistics(MBeanServer server) {
            this.server = server;
        }

        /** Takes everything up to the next "end". */
        void take(BufferedReader input) throws Exception {
            Map<String, Map<String, Object>> told = new LinkedHashMap<>();
            Map<String, Object> values = null;
            for (String[] line = next(input); !line[0].equals("end"); line = next(input)) {
                if (line[0].equals("bean")) {
                    values = new LinkedHashMap<>();
                    told.put(line[1], values);
                } else {
                    values.put(line[1], value(line[2], line[3]));
                }
            }
            for (Map.Entry<String, Map<String, Object>> one : told.entrySet()) {
                Bean bean = beans.get(one.getKey());
                if (bean == null) {
                    bean = new Bean();
                    beans.put(one.getKey(), bean);
                    server.registerMBean(bean, new ObjectName(one.getKey()));
                }
                bean.values = one.getValue();
            }
        }

        private static Object value(String type, String text) {
            return switch (type) {
                case "long" -> Long.valueOf(text);
                case "double" -> Double.valueOf(text);
                case "boolean" -> Boolean.valueOf(text);
                default -> text;
            };
        }
    }

    /** One MBean with the attributes that were told last. */
    private static final class Bean implements DynamicMBean {
        private volatile Map<String, Object> values = Map.of();

        @Override
        public Object getAttribute(String name) throws AttributeNotFoundException {
            Object value = values.get(name);
            if (value == null) {
                throw new AttributeNotFoundException("There is no attribute " + name + ".");
            }
            return value;
        }

        @Override
        public AttributeList getAttributes(String[] names) {
            AttributeList found = new AttributeList();
            Map<String, Object> now = values;
            for (String name : names) {
                if (now.containsKey(name)) {
                    found.add(new Attribute(name, now.get(name)));
                }
            }
            return found;
        }

        @Override
        public void setAttribute(Attribute attribute) throws AttributeNotFoundException {
            throw new AttributeNotFoundException("The statistics can only be read.");
        }

        @Override
        public AttributeList setAttributes(AttributeList attributes) {
            return new AttributeList();
        }

        @Override
        public Object invoke(String action, Object[] parameters, String[] signature) {
            throw new UnsupportedOperationException("The statistics can only be read.");
        }

        @Override
        public MBeanInfo getMBeanInfo() {
            MBeanAttributeInfo[] attributes =
                    values.entrySet().stream()
                            .map(
                                    one ->
                                            new MBeanAttributeInfo(
                                                    one.getKey(),
                                                    one.getValue().getClass().getName(),
                                                    one.getKey(),
                                                    true,
                                                    false,
                                                    false))
                            .toArray(MBeanAttributeInfo[]::new);
            return new MBeanInfo("mdserver.Statistics", "Statistics of a server.", attributes, null, null, null);
        }
    }
}
